"""What may be kept per key: a value, a list, a map, the last so many, a running result.

A declaration is a value: the column's type, what a new key starts with, how the stored
thing becomes what the user's code sees and how that is stored again. With `ttl` it is
forgotten when it has not been written for so long, by the watermark or by the clock.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError, call_site
from headrace.ops.agg.own import OwnAggregate, check_own
from headrace.rows import table_of
from headrace.schema import type_of


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """One thing kept per key."""

    type: pa.DataType
    default: Any = None
    kind: Any = None  # the dataclass that it is an instance of, if so
    ttl: int | None = None
    by_clock: bool = False

    mutable = False  # changed in place: a touch counts as a write

    def loaded(self, stored: Any) -> Any:
        """The stored thing as the user's code knows it."""
        record = self.kind is not None and isinstance(stored, dict)
        return self.kind(**stored) if record else stored

    def start(self) -> Any:
        """A fresh start, so that no two keys share a list."""
        return copy.deepcopy(self.default)

    def stored(self, held: Any) -> Any:
        """What to store of what the user's code left."""
        return held


class KeptList(Kept):
    """A list; elements may be records."""

    __slots__ = ()
    mutable = True

    def loaded(self, stored: Any) -> Any:
        made = stored or []
        return [self.kind(**e) if isinstance(e, dict) else e for e in made] if self.kind else made

    def start(self) -> Any:
        return []


class KeptMap(KeptList):
    """A dict."""

    __slots__ = ()

    def loaded(self, stored: Any) -> Any:
        found = dict(stored or {})
        if self.kind is None:
            return found
        return {k: self.kind(**v) if isinstance(v, dict) else v for k, v in found.items()}

    def start(self) -> Any:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class KeptLast(Kept):
    """The last `size` things: a deque."""

    size: int = 1

    mutable = True

    def loaded(self, stored: Any) -> Any:
        made = stored or []
        records = [self.kind(**e) if isinstance(e, dict) else e for e in made]
        return deque(records if self.kind else made, maxlen=self.size)

    def start(self) -> Any:
        return deque(maxlen=self.size)

    def stored(self, held: Any) -> Any:
        return list(held)


@dataclass(slots=True)
class Running:
    """A running result: `add` takes something in, `value` is what came of all."""

    fold: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]
    state: Any
    empty: bool

    def add(self, item: Any) -> None:
        self.state, self.empty = self.fold(self.state, item), False

    @property
    def value(self) -> Any:
        return None if self.empty else self.result(self.state)


@dataclass(frozen=True, slots=True, eq=False)
class KeptRunning(Kept):
    """A reducing or aggregating state."""

    zero: Callable[[], Any] = lambda: None
    fold: Callable[[Any, Any], Any] = lambda state, item: item
    result: Callable[[Any], Any] = lambda state: state

    mutable = True

    def loaded(self, stored: Any) -> Any:
        if stored is None:
            return self.start()
        return Running(self.fold, self.result, stored, empty=False)

    def start(self) -> Any:
        return Running(self.fold, self.result, self.zero(), empty=True)

    def stored(self, held: Any) -> Any:
        return None if held.empty else held.state


def value(
    kind: Any, default: Any = None, *, ttl: Duration | None = None, by_clock: bool = False
) -> Any:
    """Declare a value kept per key: `hot = hr.value(bool, default=False)`.

    With `ttl` it is forgotten when it was not written for so long: by event time, or with
    `by_clock` by processing time.
    """
    column = type_of(kind)
    try:
        table_of([(default,)], pa.schema([("value", column)]))
    except ValueError as error:
        raise PlanError(
            f"the default {default!r} is not of the value's type {column}", code="HR-PLAN-030",
            hint="Give a default of the declared type, or leave it out to start with None.",
        ) from error  # fmt: skip
    return Kept(column, default, _record(kind), *_ttl(ttl, by_clock))


def list_of(kind: Any, *, ttl: Duration | None = None, by_clock: bool = False) -> Any:
    """Declare a list kept per key: `self.seen.append(row.celsius)`."""
    return KeptList(pa.list_(type_of(kind)), None, _record(kind), *_ttl(ttl, by_clock))


def map_of(key: Any, kind: Any, *, ttl: Duration | None = None, by_clock: bool = False) -> Any:
    """Declare a dict kept per key: `self.counts[row.word] = 1`."""
    column = pa.map_(type_of(key), type_of(kind))
    return KeptMap(column, None, _record(kind), *_ttl(ttl, by_clock))


def last_of(count: int, kind: Any, *, ttl: Duration | None = None, by_clock: bool = False) -> Any:
    """Declare the last `count` things kept per key: a deque to append to."""
    if count < 1:
        raise PlanError(
            f"last_of keeps {count}", code="HR-PLAN-031", hint="Keep one at least.",
            site=call_site(),
        )  # fmt: skip
    column = pa.list_(type_of(kind))
    return KeptLast(column, None, _record(kind), *_ttl(ttl, by_clock), size=count)


def reducing(
    kind: Any, fn: Callable[[Any, Any], Any], *, ttl: Duration | None = None,
    by_clock: bool = False,
) -> Any:  # fmt: skip
    """Declare a running result of fn(a, b): `self.total.add(3)`, then `self.total.value`."""

    def fold(state: Any, item: Any) -> Any:
        return item if state is None else fn(state, item)

    return KeptRunning(type_of(kind), None, None, *_ttl(ttl, by_clock), fold=fold)


def aggregating(own: OwnAggregate, *, ttl: Duration | None = None, by_clock: bool = False) -> Any:
    """Declare a running aggregate, of a `hr.Aggregate`: `self.spread.add(row.celsius)`."""
    check_own(own)
    add = getattr(own, "add", None)
    if add is None:
        raise PlanError(
            f"{type(own).__name__} has no add, so it cannot take one thing at a time",
            code="HR-PLAN-032", hint="Give it add(state, value).", site=call_site(),
        )  # fmt: skip
    return KeptRunning(
        type_of(own.state), None, None, *_ttl(ttl, by_clock),
        zero=own.zero, fold=add, result=own.result,
    )  # fmt: skip


def _record(kind: Any) -> Any:
    return kind if dataclasses.is_dataclass(kind) else None


def _ttl(ttl: Duration | None, by_clock: bool) -> tuple[int | None, bool]:
    length = None if ttl is None else millis(ttl)
    if length is not None and length <= 0:
        raise PlanError(
            f"ttl={ttl!r} keeps nothing", code="HR-PLAN-033", hint="Choose one above zero.",
            site=call_site(),
        )  # fmt: skip
    return length, by_clock
