"""A class archive for Spark's JVM: made once per installation, it halves the start.

`python -m headrace.engine.archive` runs a tiny job and lets the JVM write down the classes
it loaded; `make` does so after installing. Every later start maps that file instead of
reading and verifying ten thousand classes. An archive that does not fit (another Java,
another PySpark) is ignored by the JVM, and one that is missing costs only time.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pyspark

_QUIET = "-Xlog:disable"  # an archive that does not fit is no news to the user


def path() -> Path:
    """Where the archive of this installation lies."""
    return Path(sys.prefix) / "share" / "headrace" / f"spark-{pyspark.__version__}.jsa"


def options() -> str:
    """What to tell a JVM so that it uses the archive, if there is one."""
    return f"-Xshare:auto -XX:SharedArchiveFile={path()} {_QUIET}" if path().exists() else ""


def make() -> None:
    """Run a tiny job and keep the classes that it took."""
    from pyspark import SparkContext

    import headrace as hr
    from headrace.engine import session

    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh = target.with_suffix(f".{os.getpid()}")
    session.LOCAL["spark.driver.extraJavaOptions"] = (
        f"{session.JVM} -XX:ArchiveClassesAtExit={fresh} {_QUIET}"
    )
    job = hr.Job("warm")
    rows = job.read(
        hr.rows([{"k": "a", "at": 0}], "k string, at bigint"), time="at", delay="1s", name="rows"
    )
    counts = rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count())
    counts.write("collect:", name="counts")
    with tempfile.TemporaryDirectory() as folder:
        hr.run(job, folder=folder, until="end", master="local[2]").wait()
    gateway = SparkContext._gateway
    SparkContext._active_spark_context.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=120)
    if fresh.exists():
        fresh.replace(target)


if __name__ == "__main__":
    make()
