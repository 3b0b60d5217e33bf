"""Asynchronous calls as a step: what the user said about them, checked.

The function may be async, or a plain one, which then runs in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.api import stream
from headrace.api.small_operators import Names, names_of
from headrace.api.step_builder import Adding
from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.ops.calls.spec import AsyncCalls
from headrace.ops.calls.work import Manner
from headrace.plan.draft import Draft
from headrace.plan.nodes import Chunks, Edge
from headrace.plan.signature import check_takes, row_schema, rows_schema
from headrace.schema import SchemaLike

if TYPE_CHECKING:
    from headrace.api.stream import Stream


class Calling:
    """Streams on which functions can be called for many rows at once."""

    _draft: Draft
    _edge: Edge

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
    ) -> Stream:
        """One row for each row, by a function that waits for something: many at a time.

        `fn` is async, or a plain function, which runs in threads. It gets a row, or with
        `batch_size` a list of rows, and gives as many. A call that fails or takes longer than
        `timeout` is tried again `retries` times, after `backoff` (100 ms), then twice that, and
        so on; then the row is a dead letter. `rate` is calls a second in each worker, `breaker`
        (5, "30s") lets calls fail at once for a while after so many failures in a row.
        `cache_ttl` keeps answers, by the columns `cache_on`, or by the whole row.
        """
        at = Adding(self._draft, self._edge, name, was)
        with self._draft.attempt(at.site):
            check_takes(fn, 1, "map_async")
        many = batch_size is not None
        found = rows_schema if many and output is None else row_schema
        schema = at.attempt(lambda: found(fn, output, "map_async"))
        at.known(names_of(cache_on))
        if names_of(cache_on) and cache_ttl is None:
            _useless(at, "cache_on", cache_on, "cached", 'cache_ttl="10m"')
        if cache_size is not None and cache_ttl is None:
            _useless(at, "cache_size", cache_size, "cached", 'cache_ttl="10m"')
        if backoff is not None and retries == 0:
            _useless(at, "backoff", backoff, "tried again", "retries=3")
        if not isinstance(ordered, bool):
            _refuse(at, "ordered", ordered, "Choose True or False.")
        manner = Manner(
            concurrency=_count(at, concurrency, "concurrency", 1),
            timeout=_length(at, timeout, "timeout"),
            retries=_count(at, retries, "retries", 0),
            backoff=_length(at, "100ms" if backoff is None else backoff, "backoff", 0) or 0,
            batch_size=None if batch_size is None else _count(at, batch_size, "batch_size", 1),
            cache_ttl=_length(at, cache_ttl, "cache_ttl"),
            cache_on=names_of(cache_on),
            cache_size=_count(at, 10_000 if cache_size is None else cache_size, "cache_size", 1),
            rate=_rate(at, rate),
            breaker=_breaker(at, breaker),
            ordered=ordered,
        )
        return stream.Stream(self._draft, _added(at, AsyncCalls(fn, manner), schema))


def _added(at: Adding, what: AsyncCalls, schema: pa.Schema) -> Edge:
    return at.add(Chunks(what=what, schema=schema, **at.common()), what.kind)


def _count(at: Adding, said: object, what: str, least: int) -> int:
    if isinstance(said, int) and not isinstance(said, bool) and said >= least:
        return said
    _refuse(at, what, said, f"Choose a whole number from {least} on.")
    return least


def _length(at: Adding, said: Duration | None, what: str, least: int = 1) -> int | None:
    if said is None:
        return None
    with at.draft.attempt(at.site):
        found = millis(said)
        if found >= least:
            return found
        _refuse(at, what, said, "Choose a duration above zero, or leave it out.")
    return None


def _rate(at: Adding, said: float | None) -> float | None:
    number = isinstance(said, int | float) and not isinstance(said, bool)
    if said is None or (number and 0 < said < float("inf")):
        return said
    _refuse(at, "rate", said, "Choose a number of calls a second above zero.")
    return None


def _breaker(at: Adding, said: Sequence[Any] | None) -> tuple[int, int] | None:
    if said is None:
        return None
    if not isinstance(said, tuple | list) or len(said) != 2:
        _refuse(at, "breaker", said, 'Say after how many failures and for how long: (5, "30s").')
        return None
    pause = _length(at, said[1], "breaker")
    return _count(at, said[0], "breaker", 1), pause or 1


def _useless(at: Adding, what: str, said: object, done: str, needs: str) -> None:
    without = f", but nothing is {done} without {needs.partition('=')[0]}="
    _refuse(at, what, said, f"Say {needs} as well, or leave {what} out.", without)


def _refuse(at: Adding, what: str, said: object, hint: str, but: str = "") -> None:
    problem = PlanError("HR-ASYNC-001", f"map_async({what}=) is {said!r}{but}", hint)
    at.report(problem)
