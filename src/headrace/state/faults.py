"""Crash points: named places at durable steps where a test may end the process.

`point(name)` does nothing unless the environment says HEADRACE_CRASH="name" or "name:n":
then at the n-th passing the process kills itself and every other process of its session (the
driver, the JVM, all workers), as a power cut would. In one process a test sets a hook
instead and raises from it.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_VARIABLE = "HEADRACE_CRASH"
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
        _power_cut()


def _power_cut() -> None:
    """Kill every process of our session, ourselves last."""
    me, session = os.getpid(), os.getsid(0)
    for entry in os.listdir("/proc"):
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
