"""Crash points: named places at durable steps where a test may end the process.

`point(name)` does nothing unless the environment says HEADRACE_CRASH="name" or "name:n":
then the process kills itself at the n-th passing. "@FILE" reads such an order from a file, if
it exists: passings are counted over all processes, and the order is carried out once.

A test that runs the job in a session of its own may choose who else is killed, in
HEADRACE_CRASH_SESSION: "1" is every process of the session, as in a power cut; "leader" (the
driver) and "java" (the JVM) are killed alone. In one process a test sets a hook instead and raises.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_VARIABLE = "HEADRACE_CRASH"
_SESSION = "HEADRACE_CRASH_SESSION"
# What os.environ holds, without its encoding of every name: points lie on hot paths.
_environment: Any = getattr(os.environ, "_data", os.environ)
_KEY: Any = _VARIABLE if _environment is os.environ else os.fsencode(_VARIABLE)
_passed: Counter[str] = Counter()
_hooks: list[Callable[[str], None]] = []


def point(name: str) -> None:
    """A durable step is about to end, or has just ended."""
    for hook in _hooks:
        hook(name)
    if _KEY in _environment:
        _maybe_crash(name, os.environ.get(_VARIABLE, ""))


def _maybe_crash(name: str, setting: str) -> None:
    if not setting:
        return
    order = setting[1:] if setting.startswith("@") else None
    target, _, nth = (_ordered(order) if order else setting).partition(":")
    if target != name or _passing(name, order) != int(nth or 1):
        return
    if order:
        os.unlink(order)
    _crash(os.environ.get(_SESSION, ""))


def _ordered(file: str) -> str:
    try:
        with open(file, encoding="utf-8") as order:
            return order.read()
    except FileNotFoundError:
        return ""


def _passing(name: str, order: str | None) -> int:
    """How often `name` was passed, now included: in this process, or since the order."""
    if order is None:
        _passed[name] += 1
        return _passed[name]
    with open(f"{order}.passed", "ab", buffering=0) as passed:  # one byte each: no two are equal
        passed.write(b".")
        return passed.tell()


def _crash(victims: str) -> None:
    """Kill `victims` of our session, and ourselves unless they are named."""
    me, session = os.getpid(), os.getsid(0)
    for entry in os.listdir("/proc") if victims else ():
        with contextlib.suppress(OSError, ValueError):
            process = int(entry)
            if process != me and os.getsid(process) == session and _is(victims, process):
                os.kill(process, signal.SIGKILL)
    if victims in ("", "1"):
        os.kill(me, signal.SIGKILL)


def _is(victims: str, process: int) -> bool:
    if victims == "leader":
        return process == os.getsid(process)
    if victims == "1":
        return True
    with open(f"/proc/{process}/comm", encoding="utf-8") as name:
        return name.read().strip() == victims


@contextmanager
def hooked(hook: Callable[[str], None] | None) -> Iterator[None]:
    """Call `hook`, if there is one, with the name of every point passed in this block."""
    if hook is None:
        yield
        return
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)
