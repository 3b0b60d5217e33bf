"""A process with everything imported, which forks Spark's Python processes on request.

Spark starts half a dozen Python processes before a job's first row moves, one after another,
and each would import PySpark, Arrow and us for a second. Instead the driver starts one
zygote beside the JVM; `launch.py`, which Spark takes for the interpreter, hands it the file
descriptors, arguments and environment of the process it needs, and a fork becomes that
process. Without a zygote (on an executor elsewhere) the interpreter starts as always.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path

from headrace import import_path
from headrace.engine.interrupts import leave_to_driver, registering
from headrace.engine.temp_folder import temp_folder
from headrace.state.faults import point

VARIABLE = "HEADRACE_ZYGOTE"
_NEEDED = (
    "pyarrow.acero",  # imported when first used, and pandas with it if it is there
    "pyarrow.parquet",
    "pyspark.daemon",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.worker",
    "headrace.engine.binding",
)
_MESSAGE = 1 << 20


_server: subprocess.Popen[bytes] | None = None
_owner = 0


def start() -> None:
    """Start this process's zygote, unless it has one; it ends when we do."""
    global _server, _owner
    if os.path.exists(os.environ.get(VARIABLE, "")) or not hasattr(os, "fork"):
        return
    folder = temp_folder()
    path = str(folder.path / "zygote")
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with registering():
        _owner, _server = (
            os.getpid(),
            subprocess.Popen(
                [sys.executable, "-P", "-m", "headrace.engine.zygote", path],
                stdin=subprocess.PIPE,
                env=environment,
                pass_fds=[folder.lock],
                preexec_fn=leave_to_driver,  # noqa: PLW1509
            ),
        )
        os.environ[VARIABLE] = path
        atexit.register(end)
    point("start.zygote")


def end() -> None:
    """End the zygote of this process, if it has one."""
    global _server
    server, _server = _server, None
    if server is None or _owner != os.getpid():
        return
    os.environ.pop(VARIABLE, None)
    server.kill()  # it holds nothing; what it has forked ends with Spark's JVM
    assert server.stdin is not None
    server.stdin.close()
    server.wait()


def serve(path: str) -> None:
    """Fork a process for every request, until the driver closes our standard input."""
    leave_to_driver()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    server.bind(f"{path}.new")
    server.listen(16)
    _import_everything()
    os.rename(f"{path}.new", path)  # now a launcher may come
    parent = os.fork()
    if parent == 0:  # the driver's end of our standard input is the only thing to wait for
        sys.stdin.buffer.read()
        os.kill(os.getppid(), signal.SIGKILL)
        os._exit(0)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            server.close()
            _become(connection)
        connection.close()


def _import_everything() -> None:
    for module in _NEEDED:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()


def _become(connection: socket.socket) -> None:
    """Turn this fork into the process that was requested; never returns."""
    message, descriptors, _, _ = socket.recv_fds(connection, _MESSAGE, 3)
    while not message.endswith(b"\n"):
        message += connection.recv(_MESSAGE)
    request = json.loads(message)
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.setpgid(0, 0)  # out of the driver's group, and so out of reach of what is sent there
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _end_with(connection)
    connection.sendall(f"{os.getpid()}\n".encode())
    connection.set_inheritable(False)
    _environment(request)
    module, *arguments = request["arguments"][1:]  # "-m", module, ...
    sys.argv = [module, *arguments]
    sys.modules.pop(module, None)  # it runs as the main module now
    traceback.print_exc = _print_exc
    code = 0
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _end_with(connection: socket.socket) -> None:
    """Have the kernel send SIGTERM when the launcher that stands for this process has ended."""
    if sys.platform != "linux":
        return  # there the shell passes on what it can
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, fcntl.F_SETSIG, signal.SIGTERM)
    flags = fcntl.fcntl(connection, fcntl.F_GETFL)
    fcntl.fcntl(connection, fcntl.F_SETFL, flags | os.O_ASYNC)


def _print_exc(*_: object, **__: object) -> None:
    """PySpark's daemon prints every error; that Spark has gone away is none."""
    error = sys.exc_info()[1]
    if error is not None and not isinstance(error, BrokenPipeError | ConnectionResetError):
        traceback.print_exception(error)


def _environment(request: dict[str, object]) -> None:
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["folder"]))
    present = set(sys.path)
    extra = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [p for p in extra if p and p not in present and Path(p).suffix != ".zip"]
    import_path.extend(import_path.from_environment())


if __name__ == "__main__":
    serve(sys.argv[1])
