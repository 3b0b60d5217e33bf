"""A start that can be abandoned at any moment.

What begins a process or a folder does so under one lock, and not at all once the start is
abandoned: so whoever ends Spark knows all there is to end. What speaks with Spark does so in a
thread of its own: a signal interrupts the main thread, never half a conversation with the JVM.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from headrace.errors import RunError

T = TypeVar("T")

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
            if not thread.is_alive():  # it could not even begin
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
