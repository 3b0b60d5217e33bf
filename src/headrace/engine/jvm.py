"""Spark's JVM: started here rather than by PySpark, so that whoever stops can always end it.

PySpark forgets the process if it is interrupted while the JVM comes up, and the JVM then stays
for ever. Here the process is known from its first moment. What it writes while it starts is
held back: it is shown when all went well, and belongs to the error when not.
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
from headrace.engine.signals import leave_to_driver
from headrace.engine.start_guard import abandon, is_abandoned, registering, resume
from headrace.engine.temp_folder import remove_temp_folder, temp_folder
from headrace.state.faults import point

_SUBMIT = Path(pyspark.__file__).with_name("bin") / "spark-submit"
_PATIENCE = 300.0  # seconds for the JVM to come up; a busy machine may take one of them, or sixty
_FAREWELL = 15.0  # seconds for the JVM to clear away and go
_POLL = 0.02
_NO_NEWS = b"WARNING: Using incubator modules"  # Spark has Java vectorise: nobody else's affair
_HELD = 1 << 20  # bytes that are held back at most


class NoJvm(Exception):
    """The JVM did not come up; its words say why."""


class _Words:
    """What the JVM writes to its standard error: held while it starts, then passed on."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._held, self._hold = stream, bytearray(), True
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._pump, name="headrace-jvm-words", daemon=True)
        self._thread.start()

    def taken(self) -> str:
        """What was held back, which nobody else will see."""
        self._thread.join(1.0)  # of a JVM that is gone: to its last word
        with self._lock:
            text = self._held.decode(errors="replace")
            self._held.clear()
        return text

    def hold(self) -> None:
        """Pass on no more: it is being ended, and what breaks now breaks for that reason."""
        with self._lock:
            self._hold = True

    def release(self) -> None:
        """Pass on what was held, and all that follows."""
        with self._lock:
            self._hold = False
            lines = self._held.splitlines(keepends=True)
            _write(b"".join(line for line in lines if not line.startswith(_NO_NEWS)))
            self._held.clear()

    def _pump(self) -> None:
        while some := os.read(self._stream.fileno(), 1 << 16):
            with self._lock:
                if not self._hold:
                    _write(some)
                elif len(self._held) < _HELD:
                    self._held += some
        self._stream.close()


def _write(some: bytes) -> None:
    try:
        while some:
            some = some[os.write(2, some) :]
    except OSError:  # closed, and nobody listens
        pass


class _Jvm:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        self.process, self.owner = process, os.getpid()
        self.words = _Words(process.stderr)  # type: ignore[arg-type]


_running: _Jvm | None = None
_ending = False
_last_words = ""
_lock = threading.RLock()  # one ends it, and who comes second waits until it is ended


def ending() -> bool:
    """Whether this process is ending Spark: what fails now fails for that reason."""
    return _ending or is_abandoned()


def launch(settings: Mapping[str, str]) -> None:
    """Start the JVM, and give it to PySpark as its own; what it says is held back."""
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


def release_words() -> None:
    """It has started: let others see what it says."""
    if _running is not None:
        _running.words.release()


def last_words() -> str:
    """What the JVM that was ended last has said and nobody has seen."""
    return _last_words


def end(within: float = _FAREWELL) -> None:
    """End Spark and the zygote, and remove the temporary folder: the program ends."""
    global _ending  # noqa: PLW0603
    with _lock:
        _ending = True
        _end(lambda jvm: None, within)


def kill() -> None:
    """End all of it at once: a start is given up."""
    abandon()
    with _lock:
        _end(lambda jvm: jvm.process.kill(), _FAREWELL)


def clear_away() -> None:
    """What is left of a JVM that is gone, so that another can be started."""
    if _running is not None and _running.process.poll() is not None:
        kill()
        forget()
        resume()


def _end(first: Callable[[_Jvm], None], within: float) -> None:
    global _running, _last_words  # noqa: PLW0603
    jvm, _running, _last_words = _running, None, ""
    if jvm is not None and jvm.owner == os.getpid():
        first(jvm)
        _hush()
        jvm.words.hold()
        assert jvm.process.stdin is not None
        with suppress(OSError):
            jvm.process.stdin.close()  # it ends when nobody can speak to it any more
        try:
            jvm.process.wait(timeout=within)
        except subprocess.TimeoutExpired:
            jvm.process.kill()
            jvm.process.wait()
        _last_words = jvm.words.taken()
    zygote.end()
    remove_temp_folder()


def forget() -> None:
    """Let PySpark know that its JVM is gone. Whoever is in the middle of something with it must
    have ended: PySpark starts a JVM of its own where it knows of none."""
    if getattr(SparkContext._gateway, "headrace", False):  # one of the program's own stays
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None


def _hush() -> None:
    """PySpark complains of nothing that follows from the end of the JVM."""
    context: Any = SparkContext._active_spark_context
    server = getattr(context, "_accumulatorServer", None)
    if server is not None:
        server.handle_error = lambda *_: None  # the end of the conversation is no error
    logging.getLogger().addFilter(_not_of_py4j)


def _not_of_py4j(record: logging.LogRecord) -> bool:
    """It says of every call that was cut off that it was; with the root's logger."""
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
