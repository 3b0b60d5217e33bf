"""The Spark session that jobs run in: with what streaming needs, and no more.

Settings that the design depends on are set here and nowhere else. Where Spark runs already
(a notebook, a cluster), it is used and left as it was.
"""

from __future__ import annotations

import fcntl
import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace import import_path
from headrace.engine import archive, jvm, zygote
from headrace.engine.failure import java_text, no_start
from headrace.engine.interrupts import resume, uninterrupted
from headrace.engine.java import check_user, find_java
from headrace.engine.temp_folder import temp_folder
from headrace.errors import HeadraceError, RunError
from headrace.settings import Settings
from headrace.sinks.console import STDOUT, reopened
from headrace.state.faults import point

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
_PATIENCE = 60  # seconds in which a cluster must provide an executor
# With executors.
_SHARED = ("PYTHONPATH", import_path.VARIABLE, "MALLOC_ARENA_MAX", "ARROW_DEFAULT_MEMORY_POOL")
_LAUNCHER_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"
_LAUNCHER = str(Path(__file__).with_name("python.sh"))


def session(master: str, extra: dict[str, str] | None = None, debug: bool = False) -> SparkSession:
    """The process's Spark session; a new one on `master` if there is none."""
    _share_output()
    jvm.clear_away()
    spark = SparkSession.getActiveSession()
    if spark is None:
        spark = uninterrupted(lambda: _started(master, extra or {}, debug), jvm.kill)
        activate(spark)
    return spark


def activate(spark: SparkSession) -> None:
    """Let this thread's JVM know the session, whichever thread has made it."""
    java: Any = spark._jvm
    java.SparkSession.setActiveSession(spark._jsparkSession)


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
        for name, old in before.items():
            if old is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, old)


def _started(master: str, extra: dict[str, str], debug: bool) -> SparkSession:
    find_java()
    check_user()
    secret = private(master, Settings.load().secret_file)
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # the JVM's many threads share theirs
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")  # it keeps the least back
    os.environ["HEADRACE_PYTHON"] = sys.executable
    os.environ[STDOUT] = _standard_output()
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _LAUNCHER_JVM)
    import_path.share()
    try:
        _choose_python(master)
        settings = {"spark.master": master, "spark.app.name": "headrace"}
        settings |= _settings(master) | extra
        if SparkContext._gateway is None:
            jvm.launch(settings)
        check_master(SparkContext._jvm, master, settings | secret)
        spark = _created(settings | secret)
        point("start.session")
        if not in_process(master):
            _await_executors(spark, master)
    except BaseException as error:
        raise _given_up(master, error, debug) from None
    jvm.release_output()
    return spark


def check_standard_output() -> None:
    """OutputError if the processes of Spark could not print where this one does."""
    if os.path.isdir("/proc/self/fd"):
        reopened(_standard_output()).close()


def _standard_output() -> str:
    return f"/proc/{os.getpid()}/fd/1"


def _created(settings: dict[str, str]) -> SparkSession:
    builder: Any = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    return spark


def _given_up(master: str, error: BaseException, debug: bool) -> BaseException:
    """The error of a start that failed; what is left of it is removed, so that another can be
    made."""
    text = java_text(error)
    context = SparkContext._active_spark_context
    if context is not None:
        with suppress(Exception):
            context.stop()
    jvm.kill()
    jvm_output = jvm.last_output()
    jvm.forget()
    resume()
    if isinstance(error, HeadraceError) or not isinstance(error, Exception):
        return error
    failed = no_start(master, text, jvm_output)
    if debug:
        failed.add_note(f"{text}\n{jvm_output}".strip())
    return failed


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
    java = f"{JVM} {archive.options()} -Djava.io.tmpdir={temp_folder().path}"
    settings = {**CORE, "spark.driver.extraJavaOptions": java}
    settings |= public(master, in_process(master)) | _folders()
    if in_process(master):
        return settings | LOOPBACK | {"spark.driver.memory": "1g"}
    shared = {name: os.environ[name] for name in _SHARED if name in os.environ}
    shared["PYTHONSAFEPATH"] = "1"
    settings |= {f"spark.executorEnv.{name}": value for name, value in shared.items()}
    if _LOOPBACK.match(master):  # executors find our files, and we are at no other address
        settings |= {**LOOPBACK, "spark.executor.extraJavaOptions": f"{JVM} {archive.options()}"}
    return settings


def _folders() -> dict[str, str]:
    """Spark's own folders are in ours, unless its user has said where they are."""
    if "SPARK_LOCAL_DIRS" in os.environ:
        return {}
    return {"spark.local.dir": str(temp_folder().path)}


_LOOPBACK = re.compile(r"spark://(127\.|localhost:|\[::1\])")


def _await_executors(spark: SparkSession, master: str) -> None:
    """Wait for executors, until their number no longer grows."""
    context: Any = spark.sparkContext
    if context.getConf().get("spark.dynamicAllocation.enabled", "false") == "true":
        return  # they come when there is work
    deadline, before = time.monotonic() + _PATIENCE, 0
    while True:
        executors = context._jsc.sc().getExecutorMemoryStatus().size() - 1  # one is the driver
        if executors and executors == before:
            return
        if time.monotonic() > deadline:
            raise RunError(
                "HR-RUN-007",
                f"no executor has come from {master!r} within {_PATIENCE} s",
                "Is a worker running there, with a core and 1 GB of memory to spare?",
            )
        before = executors
        time.sleep(0.5)


def in_process(master: str) -> bool:
    """Whether Spark runs within this machine's one JVM."""
    return master == "local" or master.startswith("local[")


def cores(master: str, debug: bool = False) -> int:
    """How many tasks run at once: Spark is asked where it runs already, or elsewhere."""
    if SparkSession.getActiveSession() or not in_process(master):
        return int(session(master, debug=debug).sparkContext.defaultParallelism)
    match = re.match(r"local\[(\d+)", master)
    if match or master == "local":
        return int(match[1]) if match else 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2


def at_once(spark: SparkSession) -> int:
    """How many tasks can run now: `defaultParallelism` says two of a cluster with one core."""
    context: Any = spark.sparkContext._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


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


# Access to a job's Spark: only for those who know its secret.
#
# Within one JVM, on YARN and on Kubernetes Spark makes a secret for every run and carries it to the
# executors itself. A standalone cluster has one secret, which its master and workers were started
# with; it is read from a file that only its owner can read. The secret is given to the JVM over the
# authenticated connection that PySpark has with it: it is on no command line, and in no file of
# ours. Across processes everything is encrypted too.


_STANDALONE = "spark://"
_AUTHENTICATED = {"spark.authenticate": "true"}
_ENCRYPTED = {
    "spark.network.crypto.enabled": "true",
    "spark.network.crypto.authEngineVersion": "2",
    "spark.network.crypto.saslFallback": "false",
}
_PROBE = {"spark.rpc.lookupTimeout": "30s", "spark.rpc.io.connectionCreationTimeout": "30s"}
_SECRET = "spark.authenticate.secret"
_CONFIGURE = (
    "Start its master and workers with spark.authenticate true, spark.authenticate.secret, "
    "spark.network.crypto.enabled true and spark.network.crypto.authEngineVersion 2"
)
_UNREACHABLE = re.compile(
    r"Connection refused|UnknownHost|Unresolved|No route to host|Network is unreachable"
    r"|Connecting to \S+ (?:timed out|failed)"
)


def public(master: str, in_process: bool) -> dict[str, str]:
    """The settings that everybody may see."""
    return _AUTHENTICATED if in_process else _AUTHENTICATED | _ENCRYPTED


def private(master: str, file: str | None) -> dict[str, str]:
    """The settings that must not be seen: none, unless a standalone cluster has a secret."""
    if not master.startswith(_STANDALONE):
        return {}
    if file is None:
        raise RunError(
            "HR-RUN-013",
            f"no secret for the standalone cluster {master!r}",
            f"{_CONFIGURE}, and name a file that holds the same secret with the setting "
            "secret_file (HEADRACE_SECRET_FILE).",
        )
    return {_SECRET: _read(file)}


def _read(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            mode, secret = os.fstat(opened.fileno()).st_mode, opened.read().strip()
    except (OSError, ValueError) as error:
        raise _bad_file(file, f"cannot be read: {error}") from error
    if not stat.S_ISREG(mode) or mode & 0o077:
        raise _bad_file(file, "can be read by others than its owner")
    if not secret:
        raise _bad_file(file, "is empty")
    return secret


def _bad_file(file: str, why: str) -> RunError:
    return RunError(
        "HR-RUN-014",
        f"the secret file {file!r} {why}",
        "It must hold the cluster's secret, and only its owner may read it: chmod 600.",
    )


def check_master(jvm: Any, master: str, settings: dict[str, str]) -> None:
    """Refuse a standalone master that does not answer, or does not know our secret.

    Spark itself would try for a minute, and then report only that nothing answers.
    """
    if not master.startswith(_STANDALONE):
        return
    failures = []
    for address in master.removeprefix(_STANDALONE).split(","):
        failure = _failure(jvm, address, settings)
        if failure is None:
            return
        failures.append(failure)
    if all(map(_UNREACHABLE.search, failures)):
        raise RunError(
            "HR-RUN-003",
            f"cannot start Spark on {master!r}: nothing answers there",
            "Check the master's address, and that it runs.",
        )
    raise RunError(
        "HR-RUN-015",
        f"the master {master!r} does not accept our secret",
        f"{_CONFIGURE}; the secret must be the one in our secret_file.",
    )


def _failure(jvm: Any, address: str, settings: dict[str, str]) -> str | None:
    """What Java says when it looks for the master at `address`; None if it is there."""
    spark = jvm.org.apache.spark
    host, _, port = address.rpartition(":")
    conf = spark.SparkConf(False)
    for name, value in {**settings, **_PROBE}.items():
        conf.set(name, value)
    manager = spark.SecurityManager
    defaults = [getattr(manager, f"$lessinit$greater$default${n}")() for n in (2, 3)]
    env = spark.rpc.RpcEnv.create("headrace", "localhost", 0, conf, manager(conf, *defaults), True)
    try:
        env.setupEndpointRef(spark.rpc.RpcAddress(host.strip("[]"), int(port)), "Master")
    except Py4JJavaError as error:
        return str(error)
    finally:
        env.shutdown()
    return None
