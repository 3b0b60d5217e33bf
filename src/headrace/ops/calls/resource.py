"""Resources: what a function needs and cannot travel, made once in each worker process.

`db = hr.resource(connect)` is a value that travels with the program; `db()` inside a function
returns what `connect()` returned in this process, which the first call calls. With an async
factory it is `await db()`. A fork starts with none. `close` is called when the process ends
in good order or is hung up, as Spark does with its workers; a killed one closes nothing.
A lambda that calls one is not traced: what it gives belongs to a worker, not to the plan.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import os
import signal
import threading
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from headrace.errors import PlanError, RunError, call_site
from headrace.expr.operators import TRACING, Untraceable

_lock = threading.RLock()  # a factory may use another resource
Instances = dict[str, tuple[Any, Callable[[Any], Any] | None]]
_instances: dict[int, Instances] = {}  # by process


@dataclass(frozen=True, eq=False)
class Resource:
    """Call it inside a function to get what its factory made."""

    factory: Callable[[], Any]
    close: Callable[[Any], Any] | None = None
    name: str = field(default_factory=lambda: uuid.uuid4().hex)

    # What it makes does not identify state, and its name is another each time a program starts.
    undigested: ClassVar = ("factory", "close", "name")

    def __call__(self) -> Any:
        if TRACING.get() is not None:
            raise Untraceable("it calls a resource, which every worker makes for itself")
        with _lock:
            instances = _of_this_process()
            if self.name in instances and not _failed(instances[self.name][0]):
                return instances[self.name][0]
            instances[self.name] = (self._instance(), self.close)
            return instances[self.name][0]

    def _instance(self) -> Any:
        if not inspect.iscoroutinefunction(self.factory):
            return self.factory()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError as error:
            raise RunError(
                "HR-ASYNC-010",
                "the resource is created by an async function, and no event loop runs here",
                "Use it as `await resource()` in a function for map_async.",
            ) from error
        return loop.create_task(self.factory())


def resource(factory: Callable[[], Any], close: Callable[[Any], Any] | None = None) -> Resource:
    """Something that every worker makes for itself, once: `db = hr.resource(connect)`.

    Call it inside a function of map, flat_map, process or map_async: `db().execute(...)`. If the
    factory is async, `await db()`. `close` is called with it when the worker ends.
    """
    if not callable(factory) or not (close is None or callable(close)):
        raise PlanError(
            "HR-ASYNC-009",
            "a resource needs a function that makes it",
            "Write hr.resource(lambda: connect(url), close=lambda db: db.close()).",
            site=call_site(),
        )
    return Resource(factory, close)


def watch() -> None:
    """Close resources when this process is hung up; heard in its main thread only."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "SIGHUP"):
        return
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _hung_up)


def close_all() -> None:
    """Close what this process holds, the newest first; one that fails hinders no other."""
    with _lock:
        instances = _of_this_process()
        newest_first = list(reversed(instances.values()))
        instances.clear()
    for instance, close in newest_first:
        if close is not None:
            try:
                _closed(instance, close)
            except Exception:
                continue


def _closed(instance: Any, close: Callable[[Any], Any]) -> None:
    if not isinstance(instance, asyncio.Future) and not inspect.iscoroutinefunction(close):
        close(instance)
        return

    async def end() -> None:
        returned = close(await instance if isinstance(instance, asyncio.Future) else instance)
        if inspect.isawaitable(returned):
            await returned

    wait_for(end())


def _of_this_process() -> Instances:
    if os.getpid() not in _instances:
        _instances[os.getpid()] = {}
        atexit.register(close_all)
        watch()
    return _instances[os.getpid()]


def _failed(instance: Any) -> bool:
    if not isinstance(instance, asyncio.Future) or not instance.done():
        return False
    return instance.cancelled() or instance.exception() is not None


def _hung_up(number: int, frame: Any) -> None:
    close_all()
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGHUP)


# One event loop per process, in a thread of its own, on which asynchronous calls run. It is
# created at the first call and again after a fork, because a thread does not survive one.


T = TypeVar("T")

_loop_lock = threading.Lock()
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
    with _loop_lock:
        if os.getpid() not in _loops:
            loop = asyncio.new_event_loop()
            threading.Thread(target=loop.run_forever, name="headrace-calls", daemon=True).start()
            _loops[os.getpid()] = loop
        return _loops[os.getpid()]
