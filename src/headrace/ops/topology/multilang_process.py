"""Programs in other languages as child processes: their start, their messages, their end.

A child speaks Storm's multilang protocol: JSON messages, each ended by a line "end", on its
standard input and output. It is started once in a worker process for each task, and ends with
it: its input is closed when the worker ends in good order, and where the kernel can it is killed
when the worker dies. What it writes to its standard error is logged under its name.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from headrace.clock import pretty
from headrace.errors import StepError
from headrace.ops.calls.resource import Resource
from headrace.ops.topology.multilang_command import Command

LOG = logging.getLogger("headrace.multilang")
SAID = ("log", "error", "metrics")  # commands that are logged
_LEVELS = (10, 10, 20, 30, 40)  # of logging, for Storm's 0-4: trace, debug, info, warn, error
_END, _CRLF = b"\nend\n", b"\r\n"
_PIECE = 1 << 16  # bytes that are read or written at a time: what a pipe holds
_LONGEST = 64 << 20  # bytes of a message
_SHOWN = 200  # characters of a message in an error
_LAST_LINES = 20  # of its standard error, that an error quotes
_GRACE = 2.0  # seconds in which a child may end by itself
_CHECK = 0.2  # seconds between two looks whether a silent child has died

# Run by a Python that then becomes the user's program: the kernel kills it when its parent dies.
_LAUNCH = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


class ChildError(Exception):
    """A child has died, hangs, or does not keep to the protocol; the text says how."""

    def __init__(self, text: str, child: Child | None = None) -> None:
        super().__init__(text)
        self.child = child

    def said(self) -> str:
        """The last lines of the child's standard error."""
        return "" if self.child is None else self.child.said()

    def with_last_lines(self, reason: str) -> str:
        """Why a tuple failed, and what the child said last."""
        said = self.said()
        return f"{reason}; its standard error ends with: {said}" if said else reason


class SilentError(ChildError):
    """It has not done anything for its timeout."""


class Child:
    """One running program. `who` names it in the log: "bolt split[3]"."""

    def __init__(self, who: str, command: Command, setup: Mapping[str, Any]) -> None:
        _show_log()
        self.who, self.command, self.ids = who, command, 0
        self._name = uuid.uuid4().hex
        self.proven = False  # it has survived a tuple
        self.unsettled: Any = None  # tuples that it has had and not acked, between two batches
        self._received, self._searched = bytearray(), 0  # so far there is no end of a message
        self._whole = deque[bytes]()  # messages that nobody has taken yet
        self.answers = deque[bytes]()  # that it waits for, and goes on waiting for in a next batch
        self.sending = memoryview(b"")
        self.deaf = False  # it has closed its input
        self._folder = tempfile.mkdtemp(prefix="headrace-pids-")
        self._process = _start(who, command)
        _children().alive.add(self)
        self._last = deque[str](maxlen=_LAST_LINES)
        self._lines = threading.Thread(target=self._log_lines, name=who, daemon=True)
        self._lines.start()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()  # type: ignore[union-attr]
        try:
            self._shake_hands({**setup, "pidDir": self._folder})
        except BaseException:
            self.kill()
            raise

    @property
    def mark(self) -> str:
        """What it has been sent: of no other process, and of this one not after another batch."""
        return f"{self._name}.{self.ids}"

    def error(self, text: str) -> ChildError:
        """It has failed in this way."""
        return ChildError(text, self)

    def _shake_hands(self, setup: Mapping[str, Any]) -> None:
        talk = Exchange(self, [encode(setup)])
        for message in talk.messages(lambda: 'its handshake: the answer {"pid": ...}'):
            if type(message.get("pid")) is int:
                return
            if message.get("command") not in SAID:
                raise self.error(f"answered the handshake with {shown(message)}, not with its pid")
            self.log(message)

    # what it says

    def log(self, message: Mapping[str, Any]) -> None:
        """What it says with its level; a metric is logged, too."""
        level, command = message.get("level", 2), message["command"]
        known = type(level) is int and 0 <= level < len(_LEVELS)
        text = message.get("msg")
        if command == "metrics":
            text = f"metric {message.get('name')} {shown(message.get('params'))}"
        LOG.log(logging.ERROR if command == "error" else _LEVELS[level] if known else logging.INFO,
                "%s: %s", self.who, text)  # fmt: skip

    def _log_lines(self) -> None:
        assert self._process.stderr is not None
        with suppress(ValueError, OSError):  # closed while it is read
            for line in self._process.stderr:
                text = line.decode("utf-8", "replace").rstrip("\n")
                self._last.append(text)
                LOG.warning("%s: %s", self.who, text)

    def said(self) -> str:
        """The last lines of its standard error, once it has ended."""
        if self.exit_code is not None:
            self._lines.join(_GRACE)
        return "\n".join(self._last)

    # messages

    def parsed(self) -> Iterator[Any]:
        """The messages that have come, in order; those that are not taken come next time."""
        end = self._received.rfind(_END, self._searched)
        if end >= 0:
            self._whole += bytes(self._received[:end]).split(_END)
            del self._received[: end + len(_END)]
        while self._whole:
            yield self._message(self._whole.popleft())
        self._searched = max(0, len(self._received) - len(_END))
        if len(self._received) > _LONGEST:
            raise self.error(f'wrote {len(self._received):,} bytes without a line "end"')

    def _message(self, part: bytes) -> dict[str, Any]:
        try:
            message = _decode(part.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            text = part.decode("utf-8", "replace")
            raise self.error(f"wrote what is not JSON ({error}): {shown(text)}") from None
        if type(message) is not dict:
            raise self.error(f"wrote {shown(message)}, which is no JSON object")
        return message

    def receive(self) -> bool:
        """Take what it has written, without waiting; False at its end."""
        with suppress(BlockingIOError):
            data = os.read(self._out, _PIECE)
            begins = max(0, len(self._received) - 1)
            self._received += data
            if self._received.find(_CRLF, begins) >= 0:  # no JSON text has one
                self._received, self._searched = self._received.replace(_CRLF, b"\n"), 0
            return bool(data)
        return True

    def send(self, data: memoryview) -> int:
        """Write what fits into the pipe; the number of bytes."""
        try:
            return os.write(self._in, data[:_PIECE])
        except BlockingIOError:
            return 0
        except BrokenPipeError:  # what it has written before is still to be read
            self.deaf = True
            return len(data)

    def wait(self, writing: bool, seconds: float) -> tuple[bool, bool]:
        """Whether it can be read from and written to, within this time."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN | select.POLLHUP)
        if writing:
            poll.register(self._in, select.POLLOUT | select.POLLERR)
        ready = dict(poll.poll(1_000 * min(seconds, _CHECK)))
        return self._out in ready, self._in in ready

    def idle_messages(self) -> Iterator[Any]:
        """What it has written between two batches."""
        yield from self.parsed()
        while self.wait(False, 0)[0]:
            going_on = self.receive()
            yield from self.parsed()
            if not going_on:
                raise self.died()

    def died(self) -> ChildError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        code = self._process.returncode
        if code is None:
            return self.error("closed its output and goes on")
        if code < 0:
            return self.error(f"died by the signal {signal.Signals(-code).name}")
        return self.error(f"ended with exit code {code}")

    @property
    def finished(self) -> bool:
        """Whether it has ended with exit code 0, and not in the middle of a message."""
        return self.exit_code == 0 and not self._received.strip()

    @property
    def exit_code(self) -> int | None:
        """Its exit code once it has ended."""
        return self._process.poll()

    # its end

    def close(self) -> None:
        """Close its input, wait, then kill what is left."""
        with suppress(OSError):
            self._process.stdin.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        with suppress(ChildError, OSError):
            for message in self.idle_messages():
                if message.get("command") == "emit" and self.unsettled is None:
                    LOG.error(
                        "%s: emitted %s after its last batch, which belongs to none: it is lost",
                        self.who, shown(message.get("tuple")),
                    )  # fmt: skip
        self.kill()

    def kill(self) -> None:
        """End it and what it has started in its process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._lines.join(_GRACE)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]
        shutil.rmtree(self._folder, ignore_errors=True)
        _children().alive.discard(self)


def _show_log() -> None:
    """Where nobody has set up logging, as in a worker of Spark, it goes to standard error."""
    if not LOG.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)


class Exchange:
    """Messages to a child and from it, both at once: neither side ever waits for a full pipe."""

    def __init__(self, child: Child, messages: Sequence[bytes]) -> None:
        self._child, self._rest = child, deque(messages)
        self._writing = False  # what the child is being sent are messages, not answers
        self.since = time.monotonic()  # when it last did something

    def answer(self, message: bytes) -> None:
        """Send this before what has not been sent yet."""
        self._child.answers.append(message)

    def send(self, message: bytes) -> None:
        """Send this after all else."""
        self._rest.append(message)

    @property
    def sent(self) -> bool:
        return not (self._child.sending or self._child.answers or self._rest)

    @property
    def delivered(self) -> bool:
        """Whether the child may have read all messages; answers may still have to be sent."""
        return not (self._rest or (self._writing and self._child.sending))

    def messages(self, waits_for: Callable[[], str]) -> Iterator[dict[str, Any]]:
        """The messages as they come; leave the loop when there will be no more."""
        child, timeout = self._child, self._child.command.timeout / 1_000
        if child.wait(False, 0)[0]:  # what it has written before it is sent anything
            child.receive()
        yield from child.parsed()
        while True:
            left = self.since + timeout - time.monotonic()
            if left <= 0:
                quiet = pretty(child.command.timeout)
                text = f"hangs: for {quiet} it has not sent {waits_for()}"
                raise SilentError(text, child)
            ended = child.exit_code is not None  # and perhaps another process holds its output
            readable, writable = child.wait(not (self.sent or child.deaf), left)
            if writable:
                self._write()
            if readable:
                going_on = child.receive()
                yield from child.parsed()
                if not going_on:
                    raise child.died()
            elif ended:
                raise child.died()

    def alive(self) -> None:
        """It has done something."""
        self.since = time.monotonic()

    def _write(self) -> None:
        child = self._child
        if not child.sending:
            source, self._writing = child.answers or self._rest, not child.answers
            taken, size = [], 0
            while source and size < _PIECE:
                taken.append(source.popleft())
                size += len(taken[-1])
            child.sending = memoryview(b"".join(taken))
        child.sending = child.sending[child.send(child.sending) :]


def encode(message: Any) -> bytes:
    """A message as it travels."""
    return json.dumps(message, separators=(",", ":")).encode() + _END


def shown(message: Any) -> str:
    """A message in an error."""
    text = message if isinstance(message, str) else json.dumps(message, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_no_constant).decode


# Starting them, and all children of this process.


def _start(who: str, command: Command) -> subprocess.Popen[bytes]:
    env, program = command.environment(), command.arguments[0]
    if not os.path.isdir(command.cwd):
        raise StepError(
            "HR-TOPOLOGY-043",
            f"{who} cannot be started: there is no folder {command.cwd!r} on this machine",
            "The program must be at the same place on every machine that runs tasks: pass cwd=.",
        )
    place = os.path.join(command.cwd, program) if os.sep in program else program
    if shutil.which(place, path=env.get("PATH")) is None:
        raise StepError(
            "HR-TOPOLOGY-042",
            f"{who} cannot be started: there is no program {program!r} on this machine",
            f"Looked for in {command.cwd if os.sep in program else env.get('PATH')}. Install it on "
            "every machine that runs tasks, or write its whole path.",
        )
    arguments = list(command.arguments)
    if sys.platform == "linux" and sys.executable:
        arguments = [sys.executable, "-I", "-S", "-c", _LAUNCH, str(os.getpid()), *arguments]
    children: _Children = _children()
    return children.starter.popen(
        arguments,
        cwd=command.cwd,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


class _Starter:
    """The thread that starts all children: the kernel kills them when the *thread* that started
    them ends, so it must be one that lives as long as the process."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[tuple[Future[Any], Any, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="headrace-starter", daemon=True).start()

    def _run(self) -> None:
        while True:
            future, arguments, options = self._work.get()
            try:
                future.set_result(subprocess.Popen(arguments, **options))
            except BaseException as error:
                future.set_exception(error)

    def popen(self, arguments: list[str], **options: Any) -> subprocess.Popen[bytes]:
        future: Future[subprocess.Popen[bytes]] = Future()
        self._work.put((future, arguments, options))
        return future.result()


class _Children:
    """Those of this process by whose they are, and the task."""

    def __init__(self) -> None:
        self.running: dict[tuple[str, str, int], Child] = {}
        self.alive: set[Child] = set()  # those of spouts, too
        self.starter = _Starter()

    def close(self) -> None:
        for child in list(self.alive):
            child.close()
        self.running.clear()


# Made again after a fork; closed when the process ends or is hung up, as Spark does with workers.
_children = Resource(_Children, _Children.close, "headrace-multilang")


def running(key: tuple[str, str, int], start: Callable[[], Child]) -> Child:
    """The child of a task, started if there is none."""
    children: dict[tuple[str, str, int], Child] = _children().running
    if key not in children:
        children[key] = start()
    return children[key]


def present(key: tuple[str, str, int]) -> Child | None:
    """The child of a task, if there is one."""
    return _children().running.get(key)  # type: ignore[no-any-return]


def forget(key: tuple[str, str, int]) -> None:
    """A child that has been killed."""
    _children().running.pop(key, None)


def close_children(owner: str) -> None:
    """End the children of a bolt in this process."""
    children = _children().running
    for key in [key for key in children if key[0] == owner]:
        children.pop(key).close()
