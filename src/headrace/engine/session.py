"""The Spark session that jobs run in: with what streaming needs, and no more.

Settings that the design depends on are set here and nowhere else. Where Spark runs already
(a notebook, a cluster), it is used and left as it was.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.engine import archive, zygote
from headrace.engine.java import check_user, find_java
from headrace.errors import RunError

_FILES = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
# Our JVM moves envelopes and schedules; the work is done in Python and C++. So it needs no
# optimising compiler and little memory, and should start quickly.
_LOGGING = Path(__file__).with_name("log4j2.properties").as_uri()
JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData -Xms80m -Xmn24m "
    f"-Dlog4j2.configurationFile={_LOGGING}"
)

CORE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.authenticate.socketTimeout": "120s",
    "spark.python.daemon.module": "headrace.engine.daemon",
    "spark.shuffle.compress": "false",
    "spark.shuffle.spill.compress": "false",
}
QUERY = {  # while a run's query starts: other users of the session keep theirs
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.checkpointFileManagerClass": _FILES,
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.numRecentProgressUpdates": "20",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.sql.codegen.wholeStage": "false",
}
LOOPBACK = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
_PATIENCE = 60  # seconds in which a cluster must give us somebody to work
_SHARED = ("PYTHONPATH", "MALLOC_ARENA_MAX", "ARROW_DEFAULT_MEMORY_POOL")  # with executors
_LAUNCHER = str(Path(__file__).with_name("python.sh"))


def session(master: str, extra: dict[str, str] | None = None) -> SparkSession:
    """The process's Spark session; a new one on `master` if there is none."""
    _share_output()
    return SparkSession.getActiveSession() or _started(master, extra or {})


def starts_slowly() -> bool:
    """Whether Spark is yet to be started here, without the class archive it could have."""
    return SparkSession.getActiveSession() is None and archive.is_wanted()


@contextmanager
def configured(spark: SparkSession) -> Iterator[None]:
    """The settings of our queries while one is started; a query keeps those it started with."""
    before = {name: spark.conf.get(name, None) for name in QUERY}
    for name, value in QUERY.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, known in before.items():
            if known is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, known)


def _started(master: str, extra: dict[str, str]) -> SparkSession:
    find_java()
    check_user()
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # the JVM's many threads share theirs
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # it keeps the least back
    _choose_python(master)
    os.environ["HEADRACE_PYTHON"] = sys.executable
    os.environ["HEADRACE_STDOUT"] = f"/proc/{os.getpid()}/fd/1"
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    _share_path()
    builder: Any = SparkSession.builder.master(master).appName("headrace")
    for name, value in {**_settings(master), **extra}.items():
        builder = builder.config(name, value)
    try:
        with _patient_jvm():
            spark: SparkSession = builder.getOrCreate()
        if not in_process(master):
            _await_executors(spark, master)
        return spark
    except Exception as error:
        _clear_away()
        raise error if isinstance(error, RunError) else _no_start(master, error) from error


_starting = threading.Event()


@contextmanager
def _patient_jvm() -> Iterator[None]:
    """A JVM that is started now does not hear SIGTERM: sent to the driver's whole group, by
    `timeout` or a service manager, it is for the driver to stop gracefully. The JVM ends
    when the driver does, for its standard input is then closed."""
    _starting.set()
    try:
        yield
    finally:
        _starting.clear()


def _after_fork() -> None:  # in the child, before it becomes the JVM
    if _starting.is_set():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


os.register_at_fork(after_in_child=_after_fork)


def _no_start(master: str, error: Exception) -> RunError:
    first, *more = str(error).splitlines() or ["no reason given"]
    java = more[0].removeprefix(": ") if more else ""
    why = "nobody answers there" if "stopped SparkContext" in java else java or first
    return RunError(
        f"cannot start Spark on {master!r}: {why}",
        code="HR-RUN-003",
        hint="Check the master's address, and that Java runs.",
    )


def _clear_away() -> None:
    """What is left of a start that failed, so that another can be made."""
    context = SparkContext._active_spark_context
    if context is not None:
        context.stop()


def _choose_python(master: str) -> None:
    """What Spark starts as its Python: here our launcher; elsewhere what is installed there."""
    if in_process(master):
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = _LAUNCHER
        zygote.start()
        return
    if os.environ.get("PYSPARK_PYTHON") in (None, _LAUNCHER):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable  # what looks for data sources


def _settings(master: str) -> dict[str, str]:
    java = f"{JVM} {archive.options()}"
    found = {**CORE, "spark.driver.extraJavaOptions": java}
    if in_process(master):
        return found | LOOPBACK | {"spark.driver.memory": "1g"}
    shared = {name: os.environ[name] for name in _SHARED if name in os.environ}
    found |= {f"spark.executorEnv.{name}": value for name, value in shared.items()}
    if _LOOPBACK.match(master):  # executors find our files, and we are at no other address
        found |= {**LOOPBACK, "spark.executor.extraJavaOptions": java}
    return found


_LOOPBACK = re.compile(r"spark://(127\.|localhost:|\[::1\])")


def _await_executors(spark: SparkSession, master: str) -> None:
    """Until those who work have come, or enough of them: one by one, they stop coming."""
    context: Any = spark.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return  # they come when there is work
    deadline, known = time.monotonic() + _PATIENCE, 0
    while True:
        there = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # one is the driver
        if there and there == known:
            return
        if time.monotonic() > deadline:
            raise RunError(
                f"no executor has come from {master!r} within {_PATIENCE} s",
                code="HR-RUN-007",
                hint="Is a worker running there, with a core and 1 GB of memory to spare?",
            )
        known = there
        time.sleep(0.5)


def in_process(master: str) -> bool:
    """Whether Spark runs within this machine's one JVM."""
    return master == "local" or master.startswith("local[")


def cores(master: str) -> int:
    """How many tasks run at once: Spark is asked where it runs already, or elsewhere."""
    if SparkSession.getActiveSession() or not in_process(master):
        return int(session(master).sparkContext.defaultParallelism)
    asked = re.match(r"local\[(\d+)", master)
    if asked or master == "local":
        return int(asked[1]) if asked else 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


def at_once(spark: SparkSession) -> int:
    """How many tasks can run now: `defaultParallelism` says two of a cluster with one core."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def _share_path() -> None:
    """Let workers import what this process can: the user's script folder included."""
    extra = [p for p in sys.path if p and "site-packages" not in p and os.path.isdir(p)]
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*known, *extra])).strip(os.pathsep)


def _share_output() -> None:
    """Let others print where we do: in `> out 2>&1` nobody writes over another's lines."""
    for descriptor in (1, 2):
        try:
            regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        except OSError:  # closed
            continue
        if regular:
            flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
            fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
