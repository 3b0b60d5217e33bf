"""Shared state of a process function: maps that every task has and control rows change.

Control rows reach every task. Each task applies all of an epoch's before it looks at other
rows, to a copy of the maps that each of its slots stores: so the copies stay equal, and slots
may move from task to task. Only the first task reports failures and counts.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, NoReturn

import pyarrow as pa

from headrace.chunk import visible
from headrace.errors import PlanError
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.process.function import Call, KeyedProcess, keyless, no_key, own_attributes
from headrace.ops.process.rows_by_key import in_turn
from headrace.ops.process.state_kinds import SharedMapState
from headrace.ops.tables import BroadcastTable
from headrace.rows import as_rows, plainly, pylist, rows_of, table_of
from headrace.state.table import TableSpec

NO_KEY = "a control row has no key"
KEY, VALUE = "key", "value"


def table_name(name: str) -> str:
    """The table that holds a shared map."""
    return f"shared.{name}"


class SharedMaps:
    def __init__(
        self, function: KeyedProcess, names: Sequence[str], ports: Collection[int]
    ) -> None:
        self._function, self._names, self._ports = function, names, frozenset(ports)
        self._declared = type(function).shared
        self._tables = {n: _table(n, declared) for n, declared in self._declared.items()}

    def tables(self) -> tuple[TableSpec, ...]:
        return tuple(table.spec for table in self._tables.values())

    def split(
        self, inputs: Sequence[pa.Table | None]
    ) -> tuple[list[pa.Table | None], list[pa.Table | None]]:
        """The inputs that are keyed, and those of control rows; both in their places."""
        keyed = [None if i in self._ports else rows for i, rows in enumerate(inputs)]
        control = [rows if i in self._ports else None for i, rows in enumerate(inputs)]
        return keyed, control

    def stored(self, step: EpochStep) -> Maps:
        """The stored maps; each entry is a new object."""
        return {name: self._read(name, step) for name in self._declared}

    def _read(self, name: str, step: EpochStep) -> dict[Any, Any]:
        rows, make = self._tables[name].rows(step), self._declared[name].make
        values = pylist(rows.column(VALUE))
        keys = pylist(rows.column(KEY))
        return dict(zip(keys, values if make is None else map(make, values), strict=True))

    def apply(self, control: Sequence[pa.Table | None], step: EpochStep) -> Maps:
        """The maps after this epoch's control rows, whose changes are stored."""
        if not any(rows is not None and rows.num_rows for rows in control):
            return self.stored(step)
        rows = self._rows(control)
        call, faults = self._call(step), list[Fault]()
        maps = self.stored(step)
        try:
            for port, row, time, _ in rows:
                self._apply_row(maps, call, port, row, time)
            changes = self._changes(self.stored(step), maps)
        except Exception:  # again, row by row
            call, maps = self._call(step), self.stored(step)
            for port, row, time, record in rows:
                maps = self._apply_checked(maps, call, port, row, time, faults, record)
            changes = self._changes(self.stored(step), maps)
        for name, (changed, deleted) in changes.items():
            self._tables[name].put(changed, step)
            self._tables[name].delete(deleted, step)
        if 0 in step.homes:
            step.faults.extend(faults)
            step.metrics.update(call.metrics)
        return maps

    def guard(self, maps: Maps, step: EpochStep) -> SharedMapGuard:
        """The maps for methods that may not change them."""
        nested = [n for n, d in self._declared.items() if pa.types.is_nested(d.type.item_type)]
        return SharedMapGuard(maps, nested, lambda: self.stored(step))

    def _call(self, step: EpochStep) -> Call:
        call = Call(step.before, step.clock)
        call.no_timer = NO_KEY
        return call

    def _rows(self, control: Sequence[pa.Table | None]) -> list[tuple[int, Any, Any, pa.Table]]:
        """Control rows in order: port, row, time, and the row as it arrived."""
        rows = [rows_of(visible(t)) if t is not None else [] for t in control]
        ordered = []
        for port, index, time in in_turn(control):
            table = control[port]
            assert table is not None
            ordered.append((port, rows[port][index], time, table.slice(index, 1)))
        return ordered

    def _apply_row(self, maps: Maps, call: Call, port: int, row: Any, time: int | None) -> None:
        kind = type(self._function)
        one = object.__new__(keyless(kind))
        one.__dict__ = {**own_attributes(self._function), **maps}
        call.input, call.time = self._names[port], time
        handler = getattr(kind, f"on_{call.input}")
        if as_rows(handler(one, row, call)):
            raise PlanError(
                "HR-PROCESS-012",
                f"on_{call.input} returns rows, but a control row reaches every task, and each "
                "would emit them",
                "Put what it carries in a hr.shared_map, and emit rows in the other methods.",
            )
        for name in (*kind.values, *kind.by_task):
            if name in one.__dict__:
                raise no_key(kind, name)
        maps.update({name: dict(one.__dict__[name]) for name in maps})

    def _apply_checked(
        self,
        maps: Maps,
        call: Call,
        port: int,
        row: Any,
        time: Any,
        faults: list[Fault],
        record: pa.Table,
    ) -> Maps:
        """The maps after one row; if its call fails, as they were before."""
        before, metrics = copy.deepcopy(maps), call.metrics.copy()
        try:
            self._apply_row(maps, call, port, row, time)
            self._changes(before, maps)
        except Exception as error:
            faults.append(Fault(record, error, port))
            call.metrics = metrics
            return before
        return maps

    def _changes(self, before: Maps, after: Maps) -> dict[str, tuple[pa.Table, pa.Table]]:
        """For each map the entries that are new or different, and the keys that were deleted."""
        changes = {}
        for name, table in self._tables.items():
            old, new = before[name], after[name]
            changed = [(k, v) for k, v in new.items() if k not in old or old[k] != v]
            deleted = [(k,) for k in old if k not in new]
            spec = table.spec
            entry = pa.schema([*spec.key, *spec.value])
            changes[name] = (table_of(changed, entry), table_of(deleted, spec.key))
        return changes


def _table(name: str, declared: SharedMapState) -> BroadcastTable:
    kind = declared.type
    key, value = pa.schema([(KEY, kind.key_type)]), pa.schema([(VALUE, kind.item_type)])
    return BroadcastTable(table_name(name), key, value)


# Shared maps in methods that may not change them.
#
# An assignment is refused at once. A list or a record within an entry cannot refuse: such an
# entry is compared with its value when it was first read. What is not read costs nothing.


Maps = dict[str, dict[Any, Any]]


class ReadOnlyMap(dict[Any, Any]):
    """A shared map that refuses to be changed."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _refused()

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __copy__(self) -> dict[Any, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[Any, Any]:
        return copy.deepcopy(dict(self), memo)


class WatchedMap(ReadOnlyMap):
    """A read-only map that remembers which entries were read, and what they were."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries)
        self._before: dict[Any, str] = {}

    def __getitem__(self, key: Any) -> Any:
        entry = super().__getitem__(key)
        if key not in self._before:
            self._before[key] = _fingerprint(entry)
        return entry

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __iter__(self) -> Iterator[Any]:  # so that dict(rules) reads entry by entry, too
        return super().__iter__()

    def values(self) -> Any:
        return {key: self[key] for key in self}.values()

    def items(self) -> Any:
        return {key: self[key] for key in self}.items()

    def copy(self) -> dict[Any, Any]:
        return dict(self)

    def __or__(self, other: Any) -> Any:
        return dict(self) | other

    @property
    def changed(self) -> bool:
        """Whether an entry that was read has changed since."""
        entry = super().__getitem__
        return any(_fingerprint(entry(key)) != was for key, was in self._before.items())

    def forget(self) -> None:
        self._before.clear()


def _fingerprint(entry: Any) -> str:
    return repr(plainly(entry))


class SharedMapGuard:
    """The maps, and whether anything within their entries was changed."""

    def __init__(self, maps: Maps, nested: Collection[str], stored: Callable[[], Maps]) -> None:
        kinds = {name: WatchedMap if name in nested else ReadOnlyMap for name in maps}
        self.maps = {name: kinds[name](entries) for name, entries in maps.items()}
        self._watched = [m for m in self.maps.values() if isinstance(m, WatchedMap)]
        self._stored = stored  # reads the maps again

    def check(self) -> None:
        """Refuse what was changed since the last time."""
        if any(watched.changed for watched in self._watched):
            raise _refused()
        self._forget()

    def restore(self) -> None:
        """Undo what was changed; the methods' own object goes on with the same maps."""
        if any(watched.changed for watched in self._watched):
            for name, entries in self._stored().items():
                dict.update(self.maps[name], entries)
        self._forget()

    def _forget(self) -> None:
        for watched in self._watched:
            watched.forget()


def _refused() -> PlanError:
    return PlanError(
        "HR-PROCESS-014",
        "shared state can be changed in the method of a broadcast input only",
        "Keep what belongs to a key in a hr.value or hr.map_of; copy an entry to change it.",
    )
