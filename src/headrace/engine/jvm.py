"""Spark's JVM: started here rather than by PySpark, so that it can always be ended.

PySpark forgets the process if it is interrupted while the JVM comes up, and the JVM then runs for
ever. Here the process is known from the first moment. What it writes while it starts is held back:
it is shown when the start succeeds, and becomes part of the error when it does not.
"""

from __future__ import annotations

import atexit
import logging
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

import pyspark
from pyspark import SparkContext
from pyspark.core import context as pyspark_context
from pyspark.sql import SparkSession

from headrace.engine import zygote
from headrace.engine.interrupts import abandon, is_abandoned, leave_to_driver, registering, resume
from headrace.engine.temp_folder import remove_temp_folder, temp_folder
from headrace.state.faults import point

_SUBMIT = Path(pyspark.__file__).with_name("bin") / "spark-submit"
_PATIENCE = 300.0  # seconds for the JVM to come up: mostly one, but sixty on a busy machine
_SHUTDOWN = 15.0  # seconds for the JVM to clean up and exit
_POLL = 0.02
_NO_NEWS = b"WARNING: Using incubator modules"  # Spark's own doing, of no interest to the user
_BUFFERED = 1 << 20  # bytes that are held back at most


class NoJvm(Exception):
    """The JVM did not come up; its output says why."""


class _Stderr:
    """What the JVM writes to its standard error: held while it starts, then passed on."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._buffer, self._hold = stream, bytearray(), True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pump, name="headrace-jvm-stderr", daemon=True)
        self._thread.start()

    def take(self) -> str:
        """Remove and return what was held back."""
        self._thread.join(1.0)  # of a JVM that has exited: to the end of its output
        with self._lock:
            text = self._buffer.decode(errors="replace")
            self._buffer.clear()
        return text

    def hold(self) -> None:
        """Pass on no more: it is being ended, and errors from now on follow from that."""
        with self._lock:
            self._hold = True

    def release(self) -> None:
        """Pass on what was held, and all that follows."""
        with self._lock:
            self._hold = False
            lines = self._buffer.splitlines(keepends=True)
            _write(b"".join(line for line in lines if not line.startswith(_NO_NEWS)))
            self._buffer.clear()

    def _pump(self) -> None:
        while data := os.read(self._stream.fileno(), 1 << 16):
            with self._lock:
                if not self._hold:
                    _write(data)
                elif len(self._buffer) < _BUFFERED:
                    self._buffer += data
        self._stream.close()


def _write(data: bytes) -> None:
    try:
        while data:
            data = data[os.write(2, data) :]
    except OSError:  # closed
        pass


class _Jvm:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self.process, self.owner = process, os.getpid()
        self.stderr = _Stderr(process.stderr)  # type: ignore[arg-type]


_running: _Jvm | None = None
_ending = False
_last_output = ""
_lock = threading.RLock()  # a second thread that ends it waits until it has ended


def ending() -> bool:
    """Whether this process is ending Spark: errors from now on follow from that."""
    return _ending or is_abandoned()


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM, and give it to PySpark as its own; its output is held back."""
    global _running  # noqa: PLW0603
    folder = temp_folder()
    info = folder.path / "gateway"
    info.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "SPARK_CONNECT_MODE": "0",
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(info),
        "PYTHONSAFEPATH": "1",  # a Python that Spark starts takes no module from where we are
    }
    with registering():
        process = subprocess.Popen(
            _command(settings),
            stdin=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            pass_fds=[folder.lock],
            preexec_fn=leave_to_driver,  # noqa: PLW1509
        )
        _running = _Jvm(process)
        atexit.register(end)
    point("start.jvm")
    _await(process, info)
    _connect(info, process)
    point("start.gateway")


def release_output() -> None:
    """It has started: pass on its output."""
    if _running is not None:
        _running.stderr.release()


def last_output() -> str:
    """What the JVM that was ended last has written and was not passed on."""
    return _last_output


def end(within: float = _SHUTDOWN) -> None:
    """End Spark and the zygote, and remove the temporary folder: the program ends."""
    global _ending  # noqa: PLW0603
    with _lock:
        _ending = True
        _end(lambda jvm: None, within)


def kill() -> None:
    """End all of it at once: a start is given up."""
    abandon()
    with _lock:
        _end(lambda jvm: jvm.process.kill(), _SHUTDOWN)


def clear_away() -> None:
    """What is left of a JVM that is gone, so that another can be started."""
    if _running is not None and _running.process.poll() is not None:
        kill()
        forget()
        resume()


def _end(first: Callable[[_Jvm], None], within: float) -> None:
    global _running, _last_output  # noqa: PLW0603
    jvm, _running, _last_output = _running, None, ""
    if jvm is not None and jvm.owner == os.getpid():
        first(jvm)
        _silence_pyspark()
        jvm.stderr.hold()
        assert jvm.process.stdin is not None
        with suppress(OSError):
            jvm.process.stdin.close()  # which makes it exit
        try:
            jvm.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            jvm.process.kill()
            jvm.process.wait()
        _last_output = jvm.stderr.take()
    zygote.end()
    remove_temp_folder()


def forget() -> None:
    """Let PySpark know that its JVM is gone. No thread may be using it any more: PySpark starts
    a JVM of its own where it knows of none."""
    if getattr(SparkContext._gateway, "headrace", False):  # one of the program's own stays
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


def _silence_pyspark() -> None:
    """Suppress the errors that follow from the end of the JVM."""
    context: Any = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None  # the end of the conversation is no error
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """Py4J logs every call that was cut off, with the root logger."""
    return "py4j" not in record.pathname


def _command(settings: Mapping[str, str]) -> list[str]:
    words = [f"{name}={value}" for name, value in settings.items()]
    rest = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    return [str(_SUBMIT), *(part for word in words for part in ("--conf", word)), *rest]


def _await(process: subprocess.Popen[bytes], info: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not info.exists():
        if process.poll() is not None:
            raise NoJvm("Java ended before Spark was up")
        if time.monotonic() > deadline:
            raise NoJvm(f"Java did not bring Spark up within {_PATIENCE:.0f} s")
        time.sleep(_POLL)


def _connect(info: Path, process: subprocess.Popen[bytes]) -> None:
    with info.open("rb") as file:
        port = int.from_bytes(file.read(4), "big")
        secret = file.read(int.from_bytes(file.read(4), "big")).decode()
    info.unlink()
    os.environ |= {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
    try:
        module: Any = pyspark_context
        gateway = module.launch_gateway()
    finally:
        del os.environ["PYSPARK_GATEWAY_PORT"], os.environ["PYSPARK_GATEWAY_SECRET"]
    gateway.proc, gateway.headrace = process, True
    logging.getLogger().removeFilter(_not_of_py4j)
    SparkContext._ensure_initialized(gateway=gateway)
