"""Interrupting a run: signals that ask it to stop, and a start that can be abandoned at any moment.

SIGINT, SIGTERM and SIGHUP ask a run to stop. While it starts, they end the start, with all that it
has begun; while it runs, they let the batch in hand finish. A signal that is ignored (`nohup`
ignores SIGHUP) stays so. Only the main thread can handle signals; a run that another thread has
started is stopped by `Run.stop`.

Processes and folders are begun under one lock, and not at all once the start is abandoned: so
whoever ends Spark knows everything there is to end. Calls to Spark are made in a thread of their
own: a signal interrupts the main thread, never half a conversation with the JVM.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from headrace.errors import RunError

T = TypeVar("T")

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def acting(act: Callable[[int], None], only: Collection[object] = ()) -> Iterator[None]:
    """Act on the signals within the block; with `only`, on those handled by one of these so far."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        act(number)

    handlers = {number: signal.getsignal(number) for number in STOPPING}
    ours = [n for n, h in handlers.items() if h is not signal.SIG_IGN and (not only or h in only)]
    for number in ours:
        signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, handlers[number])


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


# A start that can be abandoned.


_PATIENCE = 60.0  # seconds for a start that was abandoned to notice
_lock = threading.RLock()
_abandoned = False


class StartAbandoned(Exception):
    """The start was abandoned before this could begin."""


@contextmanager
def registering() -> Iterator[None]:
    """Within the block something begins that must be known to whoever ends it."""
    with _lock:
        if _abandoned:
            raise StartAbandoned
        yield


def abandon() -> None:
    """Nothing begins from now on; what has begun is known when this returns."""
    global _abandoned  # noqa: PLW0603
    with _lock:
        _abandoned = True


def is_abandoned() -> bool:
    return _abandoned


def resume() -> None:
    """Another start may be made."""
    global _abandoned  # noqa: PLW0603
    with _lock:
        _abandoned = False


def uninterrupted(work: Callable[[], T], undo: Callable[[], None]) -> T:
    """What `work` returns. If the main thread is interrupted meanwhile, `undo` makes an end of
    it, and the interruption goes on when it has ended."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    from pyspark import InheritableThread, SparkContext  # slow, and the zygote is in a hurry

    results: list[T] = []
    errors: list[BaseException] = []
    over = threading.Event()  # a `join` that is interrupted takes the thread for ended (3.11)

    def done() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        finally:
            over.set()

    kind = InheritableThread if SparkContext._active_spark_context else threading.Thread
    thread = kind(target=done, name="headrace-start", daemon=True)
    try:
        thread.start()
        while not over.wait(0.2):
            # It could not even begin, unless it has ended since the wait ran out.
            if not thread.is_alive() and not over.is_set():
                raise RunError(
                    "HR-RUN-001",
                    "Spark has gone while a job was starting",
                    "Start the job again, in a new process.",
                )
    except BaseException:
        undo()
        if thread.is_alive():
            over.wait(_PATIENCE)
        resume()
        raise
    if errors:
        raise errors[0]
    return results[0]
