"""Memory that a task no longer needs goes back to the system.

Spark's Python workers live on between tasks and take turns, so what each of them keeps for
later adds up: four workers that once held a chunk hold four chunks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa


@contextmanager
def given_back() -> Iterator[None]:
    """Free what is free when the task is done."""
    try:
        yield
    finally:
        pa.default_memory_pool().release_unused()
        _trim()


def _trimmer() -> Callable[[], object]:
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # not glibc
        return lambda: None
    return lambda: trim(0)


_trim = _trimmer()
