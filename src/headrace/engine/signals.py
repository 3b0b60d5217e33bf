"""Signals to a run: SIGINT, SIGTERM and SIGHUP ask it to stop, whatever it is doing.

While a run starts, they end the start: all that it has begun goes, at once. While it runs,
they let the batch in hand finish. A signal that is ignored (`nohup` ignores SIGHUP) stays so.
Only the main thread can handle signals; runs that others start are stopped by `Run.stop`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def acting(act: Callable[[int], None], only: Collection[object] = ()) -> Iterator[None]:
    """Act on the signals within the block; with `only`, on those handled by one of these so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        act(number)

    known = {number: signal.getsignal(number) for number in STOPPING}
    ours = [n for n, h in known.items() if h is not signal.SIG_IGN and (not only or h in only)]
    for number in ours:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, known[number])


def say_stopped(name: str, number: int) -> None:
    """From within a handler: past whatever line may be in the middle of being written."""
    text = f"{name}: stopped by {signal.Signals(number).name} while it was starting; "
    text += "the next start goes on after the last batch that was committed\n"
    with suppress(OSError):
        os.write(2, text.encode())


def die_of(number: int) -> None:
    """End as if nobody had handled the signal."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def leave_to_driver() -> None:
    """In a child, before it becomes what it is to be: sent to the driver's whole group, by a
    terminal or `timeout`, a signal is for the driver to act on."""
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)
