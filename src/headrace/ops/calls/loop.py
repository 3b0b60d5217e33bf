"""One event loop per process, in a thread of its own: what asynchronous calls run on.

It is made when it is first needed and again after a fork, because a thread does not survive
one. Nothing else knows of it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}  # by process


def wait_for(work: Coroutine[Any, Any, T]) -> T:
    """Run it on this process's loop and wait; if waiting is broken off, so is the work."""
    future = asyncio.run_coroutine_threadsafe(work, _loop())
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="headrace-calls", daemon=True).start()
            _loops[os.getpid()] = loop
        return _loops[os.getpid()]
