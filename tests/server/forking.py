"""`headrace` without its start: each command is a fork of a process that has imported everything.

    python -I -S forking.py SOCKET ARGUMENTS     what a server runs in place of `headrace`
    forked(folder)                               the process that forks, and that command

The command takes a tenth of a second in place of seconds. It is the real command line; only `run`
has no Spark (`playing.py`). The fork lives as long as the process that stands for it: that passes
on SIGTERM, and when it is killed, so is the fork.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any


def client(place: str, arguments: list[str]) -> None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    fork: list[int] = []

    def stop(number: int, frame: Any) -> None:
        if fork:
            with suppress(ProcessLookupError):
                os.kill(fork[0], signal.SIGTERM)
        else:
            os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    connection.connect(place)
    request = {"arguments": arguments, "environment": dict(os.environ), "folder": os.getcwd()}
    message = json.dumps(request).encode() + b"\n"
    socket.send_fds(connection, [message[:1]], [0, 1, 2])
    connection.sendall(message[1:])
    answers = connection.makefile()
    fork.append(int(answers.readline()))
    code = int(answers.readline() or -signal.SIGKILL)
    if code < 0:  # it was killed
        if code == -signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def serve(place: str) -> None:
    """In the process that forks: import everything, then fork for each request."""
    import headrace_command  # noqa: F401
    import tests.server.playing  # noqa: F401
    from headrace.cli import app  # noqa: F401
    from headrace.driver import dead_replay, rewind, savepoints  # noqa: F401
    from headrace.inspect import step_state, why_answer  # noqa: F401

    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place)
    listener.listen(64)
    listener.settimeout(1.0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    print("ready", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:  # else the tests were killed
        try:
            connection, _ = listener.accept()
        except TimeoutError:
            continue
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            child(connection)
        connection.close()


def child(connection: socket.socket) -> None:
    """Fork the command, and answer how it has ended; with who asked, it ends too."""
    first, fds, _, _ = socket.recv_fds(connection, 1, 3)
    request = json.loads(first + connection.makefile("rb").readline())
    ends, open_while_it_lives = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ends)
        connection.close()
        become(request, fds)
    os.close(open_while_it_lives)
    with suppress(OSError):  # who asked is gone already, which is seen below
        connection.sendall(f"{pid}\n".encode())
    ready, _, _ = select.select([ends, connection], [], [])
    if connection in ready:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with suppress(OSError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def become(request: dict[str, Any], fds: list[int]) -> None:
    code = 1
    try:
        for number, fd in enumerate(fds):
            os.dup2(fd, number)
            os.close(fd)
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = ["headrace", *request["arguments"]]
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        code = command()
    finally:
        os._exit(code)


def command() -> int:
    from headrace_command import main

    try:
        main()
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0 if ending.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return 0


Command = Callable[[Sequence[str]], list[str]]


@contextmanager
def forked(folder: Path) -> Iterator[Command]:
    """While it is open: makes the command line of arguments of `headrace`."""
    place, root = str(folder / "fork.sock"), Path(__file__).parents[2]
    path = os.pathsep.join([str(root), str(root / "src")])
    code = f"from tests.server.forking import serve; serve({place!r})"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield lambda arguments: [sys.executable, "-I", "-S", __file__, place, *arguments]
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    client(sys.argv[1], sys.argv[2:])
