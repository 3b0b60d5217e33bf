"""The words with which a class declares what it keeps: `hot = hr.value(bool)`, and so on.

All take `ttl` (forgotten when not written for so long; `by_clock` by the clock instead of
event time) and `was` (its name in an earlier version of the program). They give values of
`kept.py` and check what they are given; nothing here runs with a job.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError, call_site
from headrace.ops.agg.own import OwnAggregate, check_own
from headrace.ops.process.kept import Kept, KeptLast, KeptList, KeptMap, KeptRunning, KeptShared
from headrace.rows import table_of
from headrace.schema import type_of


def value(
    kind: Any, default: Any = None, *, ttl: Duration | None = None, by_clock: bool = False,
    was: str | None = None,
) -> Any:  # fmt: skip
    """Declare a value kept per key: `hot = hr.value(bool, default=False)`.

    With `ttl` it is forgotten when it was not written for so long: by event time, or with
    `by_clock` by processing time. `was` is the name it had in an earlier version.
    """
    column = type_of(kind)
    try:
        table_of([(default,)], pa.schema([("value", column)]))
    except ValueError as error:
        raise PlanError(
            f"the default {default!r} is not of the value's type {column}", code="HR-PLAN-030",
            hint="Give a default of the declared type, or leave it out to start with None.",
            site=call_site(),
        ) from error  # fmt: skip
    return Kept(column, default, kind, *_common(ttl, by_clock, was))


def list_of(
    kind: Any, *, ttl: Duration | None = None, by_clock: bool = False, was: str | None = None
) -> Any:
    """Declare a list kept per key: `self.seen.append(row.celsius)`."""
    return KeptList(pa.list_(type_of(kind)), None, kind, *_common(ttl, by_clock, was))


def map_of(
    key: Any, kind: Any, *, ttl: Duration | None = None, by_clock: bool = False,
    was: str | None = None,
) -> Any:  # fmt: skip
    """Declare a dict kept per key: `self.counts[row.word] = 1`."""
    column = pa.map_(type_of(key), type_of(kind))
    return KeptMap(column, None, kind, *_common(ttl, by_clock, was))


def last_of(
    count: int, kind: Any, *, ttl: Duration | None = None, by_clock: bool = False,
    was: str | None = None,
) -> Any:  # fmt: skip
    """Declare the last `count` things kept per key: a deque to append to."""
    if count < 1:
        raise PlanError(
            f"last_of keeps {count}", code="HR-PLAN-031", hint="Keep one at least.",
            site=call_site(),
        )  # fmt: skip
    column = pa.list_(type_of(kind))
    return KeptLast(column, None, kind, *_common(ttl, by_clock, was), size=count)


def reducing(
    kind: Any, fn: Callable[[Any, Any], Any], *, ttl: Duration | None = None,
    by_clock: bool = False, was: str | None = None,
) -> Any:  # fmt: skip
    """Declare a running result of fn(a, b): `self.total.add(3)`, then `self.total.value`."""

    def fold(state: Any, item: Any) -> Any:
        return item if state is None else fn(state, item)

    return KeptRunning(type_of(kind), None, kind, *_common(ttl, by_clock, was), fold=fold)


def aggregating(
    own: OwnAggregate, *, ttl: Duration | None = None, by_clock: bool = False,
    was: str | None = None,
) -> Any:  # fmt: skip
    """Declare a running aggregate, of a `hr.Aggregate`: `self.spread.add(row.celsius)`."""
    check_own(own)
    add = getattr(own, "add", None)
    if add is None:
        raise PlanError(
            f"{type(own).__name__} has no add, so it cannot take one thing at a time",
            code="HR-PLAN-032", hint="Give it add(state, value).", site=call_site(),
        )  # fmt: skip
    return KeptRunning(
        type_of(own.state), None, own.state, *_common(ttl, by_clock, was),
        zero=own.zero, fold=add, result=own.result,
    )  # fmt: skip


def shared_map(key: Any, kind: Any, *, was: str | None = None) -> Any:
    """Declare a dict that is the same for all keys: `limits = hr.shared_map(str, float)`.

    Only the method of a broadcast input (`rules.broadcast()`) may change it; everywhere else
    it can be read. It is for rules and settings: thousands of entries, not millions.
    """
    column = pa.map_(type_of(key), type_of(kind))
    return KeptShared(column, None, kind, None, False, was)


def _common(
    ttl: Duration | None, by_clock: bool, was: str | None
) -> tuple[int | None, bool, str | None]:
    length = None if ttl is None else millis(ttl)
    if length is not None and length <= 0:
        raise PlanError(
            f"ttl={ttl!r} keeps nothing", code="HR-PLAN-033", hint="Choose one above zero.",
            site=call_site(),
        )  # fmt: skip
    return length, by_clock, was
