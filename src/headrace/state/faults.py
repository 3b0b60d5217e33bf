"""Crash points: named places at durable steps where a test may end the process.

`point(name)` does nothing unless the environment says HEADRACE_CRASH="name" or "name:n":
then the process kills itself at the n-th passing. With HEADRACE_CRASH_SESSION=1, which only
a test that has made a session for the job may say, the whole session goes with it: driver,
JVM and workers, as in a power cut. In one process a test sets a hook instead and raises.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_VARIABLE = "HEADRACE_CRASH"
_SESSION = "HEADRACE_CRASH_SESSION"
_passed: Counter[str] = Counter()
_hooks: list[Callable[[str], None]] = []


def point(name: str) -> None:
    """A durable step is about to end, or has just ended."""
    for hook in _hooks:
        hook(name)
    wanted = os.environ.get(_VARIABLE)
    if wanted:
        _maybe_crash(name, wanted)


def _maybe_crash(name: str, wanted: str) -> None:
    target, _, nth = wanted.partition(":")
    if target != name:
        return
    _passed[name] += 1
    if _passed[name] == int(nth or 1):
        _crash()


def _crash() -> None:
    """Kill ourselves, and before that, if so asked, every process of our session."""
    me, session = os.getpid(), os.getsid(0)
    whole = os.environ.get(_SESSION) == "1"
    for entry in os.listdir("/proc") if whole else ():
        with contextlib.suppress(OSError, ValueError):
            if int(entry) != me and os.getsid(int(entry)) == session:
                os.kill(int(entry), signal.SIGKILL)
    os.kill(me, signal.SIGKILL)


@contextmanager
def hooked(hook: Callable[[str], None]) -> Iterator[None]:
    """Call `hook` with the name of every point passed in this block."""
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)
