"""A class archive for Spark's JVM: made once per installation, it halves the start.

`headrace warm` runs a tiny job and has the JVM record the classes it loaded; `make` does so after
installing, and a run without an archive suggests it. Every later start maps that file instead of
reading and verifying ten thousand classes. An archive is stored with the installation or, where
that cannot be written, in the user's cache; its name contains the Spark, the Java and the
installation it fits, so an upgrade of one of them needs a new one. The JVM ignores an archive that
does not fit after all; a missing one costs only time.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pyspark
from pyspark.find_spark_home import _find_spark_home

from headrace.clock import SystemClock
from headrace.engine.java import find_java, release_of
from headrace.engine.jvm import end as end_spark
from headrace.errors import RunError

_RECORD = "HEADRACE_RECORD"
_QUIET = "-Xlog:disable"  # an archive that does not fit is no news to the user
# Mapped where it was made for, its pages stay the file's; moved, every one is copied.
_IN_PLACE = "-XX:+UnlockDiagnosticVMOptions -XX:ArchiveRelocationMode=0"
_PATIENCE = 300  # seconds in which a JVM must have written its archive
_ABANDONED = 3_600_000  # ms after which nobody is still writing a file


def find() -> Path | None:
    """The archive that fits this Spark and this Java, if there is one."""
    name = _name()
    return next((f / name for f in _folders() if _is_ours(f / name)), None)


def is_wanted() -> bool:
    """Whether there is none, though one could be made."""
    return _RECORD not in os.environ and find() is None and any(map(_can_be_made, _folders()))


def options() -> str:
    """The JVM options that make it use the archive, if there is one."""
    if _RECORD in os.environ:
        return os.environ[_RECORD]
    file = find()
    return f'-Xshare:auto "-XX:SharedArchiveFile={file}" {_IN_PLACE} {_QUIET}' if file else ""


def record(work: Callable[[], object]) -> Path:
    """Let `work` start Spark and use it; store the classes that it loaded.

    A reader finds the archive whole or not at all, even while two processes make it.
    """
    folder = _writable_folder()
    _sweep(folder)
    target = folder / _name()
    fresh = folder / f".{target.name}.{os.getpid()}"
    os.environ[_RECORD] = f'"-XX:ArchiveClassesAtExit={fresh}" {_QUIET}'
    try:
        work()
        end_spark(within=_PATIENCE)
        if not fresh.exists():
            raise RunError(
                "HR-RUN-005",
                "the JVM wrote no class archive",
                "It works without one, only more slowly; OpenJDK 17 and newer can make it.",
            )
        fresh.replace(target)
    finally:
        del os.environ[_RECORD]
        fresh.unlink(missing_ok=True)
    return target


# names and places


def _name() -> str:
    home = Path(find_java()).resolve().parent.parent
    jvm = [f"{p} {p.stat().st_mtime_ns}" for p in sorted(home.glob("lib/*/libjvm.*"))]
    java = _digest(str(home), release_of(home), *jvm)
    return f"spark-{pyspark.__version__}-java-{java}-{_installation()}.jsa"


def _installation() -> str:
    return _digest(_find_spark_home())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]


def _folders() -> Iterator[Path]:
    yield Path(sys.prefix) / "share" / "headrace"
    cache = os.environ.get("XDG_CACHE_HOME", "")
    cache = cache if os.path.isabs(cache) else os.path.expanduser("~/.cache")
    if os.path.isabs(cache):  # else there is no home
        yield Path(cache) / "headrace"


def _is_ours(file: Path) -> bool:
    """Whether the classes in it are ours to run: in a cache, only what this user has made."""
    try:
        owner = file.stat().st_uid
    except OSError:
        return False
    return file.is_relative_to(sys.prefix) or owner == os.geteuid()


def _can_be_made(folder: Path) -> bool:
    nearest = next(f for f in (folder, *folder.parents) if f.exists())
    return os.access(nearest, os.W_OK | os.X_OK)


def _writable_folder() -> Path:
    for folder in _folders():
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    raise RunError(
        "HR-RUN-005",
        "no folder for a class archive can be written",
        f"Let one of these be writable: {', '.join(map(str, _folders()))}. "
        "It works without an archive, only starts more slowly.",
    )


def _sweep(folder: Path) -> None:
    """Remove half-written archives of killed processes, and those of other versions of Spark."""
    for file in folder.glob(".spark-*"):
        if SystemClock().now() - file.stat().st_mtime * 1_000 > _ABANDONED:
            file.unlink(missing_ok=True)
    for file in folder.glob(f"spark-*-{_installation()}.jsa"):
        if not file.name.startswith(f"spark-{pyspark.__version__}-"):
            file.unlink(missing_ok=True)
