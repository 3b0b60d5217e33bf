"""The kinds of state per key: a value, a list, a map, the last so many, a running result.

A declaration is a value: the column's type, what a new key starts with, how the stored value
becomes what the user's code sees and how that is stored again. With `ttl` it expires when it has
not been written for so long, by event time or by the clock.
"""

from __future__ import annotations

import copy
import inspect
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError, call_site
from headrace.ops.agg.own import OwnAggregate, check_own
from headrace.ops.process.migration import checked
from headrace.records import Maker, maker
from headrace.rows import table_of
from headrace.schema import ddl_type, type_of
from headrace.state_copies import Copy, state_copier, state_copy


@dataclass(frozen=True, slots=True, eq=False)
class ValueState:
    """One piece of state per key."""

    type: pa.DataType
    default: Any = None
    kind: Any = None  # the Python type it was declared with, or that of its elements
    ttl: int | None = None
    by_clock: bool = False
    was: str | None = None  # its name in an earlier version of the program
    was_fields: Mapping[str, str] = field(default_factory=dict)  # the same of its fields
    make: Maker | None = field(init=False)

    word = "value"  # what people call it
    at_rest = "Kept"  # never changes

    def __post_init__(self) -> None:
        object.__setattr__(self, "make", maker(self.kind))

    @property
    def mutable(self) -> bool:
        """Whether it may be changed in place: reading it then counts as a write."""
        return bool(pa.types.is_nested(self.type))

    @property
    def whole(self) -> Any:
        """The Python type of the whole value, where `kind` is that of its elements."""
        if self.word in ("list", "last"):
            return list[self.kind]  # type: ignore[name-defined]
        if self.word in ("map", "shared map"):
            return dict[Any, self.kind]  # type: ignore[name-defined]
        return self.kind

    def loaded(self, stored: Any) -> Any:
        """The stored value as the user's code sees it."""
        return stored if self.make is None else self.make(stored)

    def start(self) -> Any:
        """A new start value, so that no two keys share a list."""
        return copy.deepcopy(self.default)

    def stored(self, value: Any) -> Any:
        """What to store of the value that the user's code left."""
        return value

    def copier(self) -> Copy | None:
        """How a value is copied that the user's code may go on using; None if none has to be."""
        return state_copier(self.type)


class ListState(ValueState):
    """A list; elements may be records."""

    __slots__ = ()
    word = "list"
    at_rest = "KeptList"  # never changes

    def loaded(self, stored: Any) -> Any:
        items = stored or []
        return items if self.make is None else list(map(self.make, items))

    def start(self) -> Any:
        return []


class MapState(ValueState):
    """A dict."""

    __slots__ = ()
    word = "map"
    at_rest = "KeptMap"  # never changes

    def loaded(self, stored: Any) -> Any:
        entries = dict(stored or {})
        return entries if self.make is None else {k: self.make(v) for k, v in entries.items()}

    def start(self) -> Any:
        return {}


@dataclass(frozen=True, slots=True, eq=False)
class LastState(ValueState):
    """The last `size` items: a deque."""

    size: int = 1

    word = "last"
    at_rest = "KeptLast"  # never changes

    def loaded(self, stored: Any) -> Any:
        items = stored or []
        return deque(items if self.make is None else map(self.make, items), maxlen=self.size)

    def start(self) -> Any:
        return deque(maxlen=self.size)

    def stored(self, value: Any) -> Any:
        return list(value)[-self.size :]


@dataclass(slots=True)
class RunningValue:
    """A running result: `add` an item, `value` is the result of all."""

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
class RunningState(ValueState):
    """A reducing or aggregating state."""

    zero: Callable[[], Any] = lambda: None
    fold: Callable[[Any, Any], Any] = lambda state, item: item
    result: Callable[[Any], Any] = lambda state: state

    word = "running result"
    at_rest = "KeptRunning"  # never changes

    @property
    def mutable(self) -> bool:
        return True

    def loaded(self, stored: Any) -> Any:
        if stored is None:
            return self.start()
        state = stored if self.make is None else self.make(stored)
        return RunningValue(self.fold, self.result, state, empty=False)

    def start(self) -> Any:
        return RunningValue(self.fold, self.result, state_copy(self.zero()), empty=True)

    def stored(self, value: Any) -> Any:
        return None if value.empty else value.state

    def copier(self) -> Copy | None:
        copied = state_copier(self.type)
        return copied and (lambda running: replace(running, state=copied(running.state)))


class SharedMapState(ValueState):
    """A dict that every task has, changed by control rows only."""

    __slots__ = ()
    word = "shared map"
    at_rest = "KeptShared"  # never changes

    def start(self) -> Any:
        return {}


# The functions with which a class declares its state: `hot = hr.value(bool)`, and so on.
#
# All take `ttl` (it expires when not written for so long; `by_clock`: by the clock instead of event
# time), `was` (its name in an earlier version of the program) and `was_fields` (of the fields of a
# record: name now -> name before). They check their arguments; nothing here runs with a job.


def value(
    kind: Any,
    default: Any = None,
    *,
    ttl: Duration | None = None,
    by_clock: bool = False,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a value per key: `hot = hr.value(bool, default=False)`.

    With `ttl` it is forgotten when it was not written for so long: by event time, or with
    `by_clock` by processing time. `was` is the name it had in an earlier version, `was_fields`
    those of its fields: {"celsius": "temp"}, or {"place.lat": "latitude"}.
    """
    column = _typed(kind)
    try:
        table_of([(default,)], pa.schema([("value", column)]))
    except ValueError as error:
        raise PlanError(
            "HR-PLAN-030",
            f"the default {default!r} is not of the value's type {ddl_type(column)}",
            "Give a default of the declared type, or leave it out to start with None.",
            site=call_site(),
        ) from error
    options = ttl, by_clock, was, was_fields
    return _declared(ValueState, column, kind, options, default)


def list_of(
    kind: Any,
    *,
    ttl: Duration | None = None,
    by_clock: bool = False,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a list per key: `self.seen.append(row.celsius)`."""
    options = ttl, by_clock, was, was_fields
    return _declared(ListState, pa.list_(_typed(kind)), kind, options)


def map_of(
    key: Any,
    kind: Any,
    *,
    ttl: Duration | None = None,
    by_clock: bool = False,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a dict per key: `self.counts[row.word] = 1`."""
    options = ttl, by_clock, was, was_fields
    return _declared(MapState, _map(key, kind), kind, options)


def last_of(
    count: int,
    kind: Any,
    *,
    ttl: Duration | None = None,
    by_clock: bool = False,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare the last `count` things per key: a deque to append to."""
    if not isinstance(count, int) or count < 1:
        raise PlanError(
            "HR-PLAN-031",
            f"last_of has a size of {count!r}",
            "Say how many, one at least, and of what: hr.last_of(3, float).",
            site=call_site(),
        )
    options = ttl, by_clock, was, was_fields
    return _declared(LastState, pa.list_(_typed(kind)), kind, options, size=count)


def reducing(
    kind: Any,
    fn: Callable[[Any, Any], Any],
    *,
    ttl: Duration | None = None,
    by_clock: bool = False,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a running result of fn(a, b): `self.total.add(3)`, then `self.total.value`."""
    if not takes_two(fn):
        raise PlanError(
            "HR-PLAN-036",
            f"reducing needs a function of two arguments, not {fn!r}",
            "Give a function of two arguments: hr.reducing(int, max).",
            site=call_site(),
        )

    def fold(state: Any, item: Any) -> Any:
        return item if state is None else fn(state, item)

    options = ttl, by_clock, was, was_fields
    return _declared(RunningState, _typed(kind), kind, options, fold=fold)


def takes_two(fn: Any) -> bool:
    try:
        inspect.signature(fn).bind(None, None)
    except ValueError:  # a builtin without a signature
        return True
    except TypeError:
        return False
    return True


def aggregating(
    own: OwnAggregate,
    *,
    ttl: Duration | None = None,
    by_clock: bool = False,
    was: str | None = None,
    was_fields: Mapping[str, str] | None = None,
) -> Any:
    """Declare a running aggregate, of a `hr.Aggregate`: `self.spread.add(row.celsius)`."""
    if not isinstance(own, OwnAggregate):
        raise PlanError(
            "HR-PLAN-037",
            f"aggregating needs an aggregate, not {own!r}",
            "Give an object of a class that you derive from hr.Aggregate: "
            "hr.aggregating(Spread()).",
            site=call_site(),
        )
    check_own(own)
    add = getattr(own, "add", None)
    if add is None:
        raise PlanError(
            "HR-PLAN-032",
            f"{type(own).__name__} has no add, so it cannot take one thing at a time",
            "Give it add(state, value).",
            site=call_site(),
        )
    options = ttl, by_clock, was, was_fields
    functions = {"zero": own.zero, "fold": add, "result": own.result}
    return _declared(RunningState, _typed(own.state), own.state, options, **functions)


def shared_map(
    key: Any, kind: Any, *, was: str | None = None, was_fields: Mapping[str, str] | None = None
) -> Any:
    """Declare a dict that is the same for all keys: `limits = hr.shared_map(str, float)`.

    Only the method of a broadcast input (`rules.broadcast()`) may change it; everywhere else
    it can be read. It is for rules and settings: thousands of entries, not millions.
    """
    return _declared(SharedMapState, _map(key, kind), kind, (None, False, was, was_fields))


def _declared(
    state: type[ValueState],
    column: pa.DataType,
    kind: Any,
    options: tuple[Duration | None, bool, str | None, Mapping[str, str] | None],
    default: Any = None,
    **more: Any,
) -> ValueState:
    """The declaration; refuses options that are impossible."""
    ttl, by_clock, was, was_fields = options
    length = None if ttl is None else millis(ttl)
    if length is not None and length <= 0:
        raise PlanError(
            "HR-PLAN-033",
            f"ttl={ttl!r} would store nothing",
            "Choose one above zero.",
            site=call_site(),
        )
    if by_clock and length is None:
        raise PlanError(
            "HR-PLAN-035",
            "by_clock=True says by which time a value is forgotten, but it has no ttl",
            'Pass ttl="1h" as well, or leave by_clock out.',
            site=call_site(),
        )
    names = checked(was_fields, column)
    return state(column, default, kind, length, by_clock, was, names, **more)


def _map(key: Any, kind: Any) -> pa.DataType:
    return _hashable(pa.map_(type_of(key), type_of(kind)))


def _typed(kind: Any) -> pa.DataType:
    return _hashable(type_of(kind))


def _hashable(column: pa.DataType) -> pa.DataType:
    """The type, if every map in it has keys that a Python dict can have once they are read."""
    if pa.types.is_map(column) and pa.types.is_nested(column.key_type):
        raise PlanError(
            "HR-PLAN-038",
            f"the keys of a map cannot be {ddl_type(column.key_type)}",
            "Key it by text, a number, a boolean, a date or a time; join several in a text.",
            site=call_site(),
        )
    if pa.types.is_nested(column):
        for i in range(column.num_fields):
            _hashable(column.field(i).type)
    return column
