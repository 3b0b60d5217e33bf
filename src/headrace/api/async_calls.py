"""Asynchronous calls as a step: `map_async` and its arguments, checked.

The function may be async, or a plain one, which then runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headrace.api.handles import (
    JoinT,
    Names,
    Results,
    StepBuilder,
    StreamT,
    TableT,
    TimedT,
    names_of,
)
from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.ops.calls.caller import AsyncCalls, CallOptions
from headrace.plan.signature import check_takes, row_schema, rows_schema
from headrace.schema import SchemaLike


class AsyncMapping(Results[StreamT, TimedT, JoinT, TableT]):
    """Streams on which functions can be called for many rows at once."""

    def map_async(
        self,
        fn: Callable[[Any], Any],
        concurrency: int = 16,
        timeout: Duration | None = None,
        *,
        output: SchemaLike | None = None,
        retries: int = 0,
        backoff: Duration | None = None,
        batch_size: int | None = None,
        cache_ttl: Duration | None = None,
        cache_on: Names = (),
        cache_size: int | None = None,
        rate: float | None = None,
        breaker: tuple[int, Duration] | None = None,
        ordered: bool = True,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """One row for each row, by a function that waits for something: many at a time.

        `fn` is async, or a plain function, which runs in threads. It gets a row, or with
        `batch_size` a list of rows, and returns as many. A call that fails or takes longer than
        `timeout` is tried again `retries` times, after `backoff` (100 ms), then twice that, and
        so on; then the row is a dead letter. `rate` is calls a second in each worker, `breaker`
        (5, "30s") lets calls fail at once for a while after so many failures in a row.
        `cache_ttl` caches answers, by the columns `cache_on`, or by the whole row.
        """
        step = self._step(name, was)
        with self._draft.attempt(step.site):
            check_takes(fn, 1, "map_async")
        many = batch_size is not None
        infer = rows_schema if many and output is None else row_schema
        schema = step.attempt(lambda: infer(fn, output, "map_async"))
        step.require_columns(names_of(cache_on))
        if names_of(cache_on) and cache_ttl is None:
            _useless(step, "cache_on", cache_on, "cached", 'cache_ttl="10m"')
        if cache_size is not None and cache_ttl is None:
            _useless(step, "cache_size", cache_size, "cached", 'cache_ttl="10m"')
        if backoff is not None and retries == 0:
            _useless(step, "backoff", backoff, "tried again", "retries=3")
        if not isinstance(ordered, bool):
            _refuse(step, "ordered", ordered, "Choose True or False.")
        options = CallOptions(
            concurrency=_count(step, concurrency, "concurrency", 1),
            timeout=_length(step, timeout, "timeout"),
            retries=_count(step, retries, "retries", 0),
            backoff=_length(step, "100ms" if backoff is None else backoff, "backoff", 0) or 0,
            batch_size=None if batch_size is None else _count(step, batch_size, "batch_size", 1),
            cache_ttl=_length(step, cache_ttl, "cache_ttl"),
            cache_on=names_of(cache_on),
            cache_size=_count(step, 10_000 if cache_size is None else cache_size, "cache_size", 1),
            rate=_rate(step, rate),
            breaker=_breaker(step, breaker),
            ordered=ordered,
        )
        return self._stream(step.chunks(AsyncCalls(fn, options), schema))


def _count(step: StepBuilder, value: object, what: str, least: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= least:
        return value
    _refuse(step, what, value, f"Choose a whole number from {least} on.")
    return least


def _length(step: StepBuilder, value: Duration | None, what: str, least: int = 1) -> int | None:
    if value is None:
        return None
    with step.draft.attempt(step.site):
        length = millis(value)
        if length >= least:
            return length
        _refuse(step, what, value, "Choose a duration above zero, or leave it out.")
    return None


def _rate(step: StepBuilder, value: float | None) -> float | None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (number and 0 < value < float("inf")):
        return value
    _refuse(step, "rate", value, "Choose a number of calls a second above zero.")
    return None


def _breaker(step: StepBuilder, value: Sequence[Any] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2:
        _refuse(step, "breaker", value, 'Say after how many failures and for how long: (5, "30s").')
        return None
    pause = _length(step, value[1], "breaker")
    return _count(step, value[0], "breaker", 1), pause or 1


def _useless(step: StepBuilder, what: str, value: object, done: str, needs: str) -> None:
    without = f", but nothing is {done} without {needs.partition('=')[0]}="
    _refuse(step, what, value, f"Say {needs} as well, or leave {what} out.", without)


def _refuse(step: StepBuilder, what: str, value: object, hint: str, but: str = "") -> None:
    problem = PlanError("HR-ASYNC-001", f"map_async({what}=) is {value!r}{but}", hint)
    step.report(problem)
