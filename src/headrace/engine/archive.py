"""A class archive for Spark's JVM: made once per installation, it halves the start.

`headrace warm` runs a tiny job and lets the JVM write down the classes it loaded; `make`
does so after installing. Every later start maps that file instead of
reading and verifying ten thousand classes. An archive that does not fit (another Java,
another PySpark) is ignored by the JVM, and one that is missing costs only time.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pyspark

from headrace.engine import jvm
from headrace.errors import RunError

_RECORD = "HEADRACE_RECORD"
_QUIET = "-Xlog:disable"  # an archive that does not fit is no news to the user
# Mapped where it was made for, its pages stay the file's; moved, every one is copied.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"


def path() -> Path:
    """Where the archive of this installation lies."""
    return Path(sys.prefix) / "share" / "headrace" / f"spark-{pyspark.__version__}.jsa"


def options() -> str:
    """What to tell a JVM so that it uses the archive, if there is one."""
    if _RECORD in os.environ:
        return os.environ[_RECORD]
    shared = f"-Xshare:auto -XX:SharedArchiveFile={path()} {_IN_PLACE} {_QUIET}"
    return shared if path().exists() else ""


def record(work: Callable[[], object]) -> Path:
    """Let `work` start Spark and use it; keep the classes that it took."""
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    os.environ[_RECORD] = f"-XX:ArchiveClassesAtExit={fresh} {_QUIET}"
    work()
    jvm.end(within=120)  # it writes the archive when it ends
    if not fresh.exists():
        raise RunError(
            "the JVM wrote no class archive", code="HR-RUN-005",
            hint="It works without one, only more slowly; OpenJDK 17 and newer can make it.",
        )  # fmt: skip
    fresh.replace(target)
    return target
