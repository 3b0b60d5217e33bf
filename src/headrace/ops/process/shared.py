"""What every task of a process function knows: maps that control rows change.

Control rows reach every task. Each task applies all of an epoch's before it looks at other
rows, to a copy of the maps that each of its slots keeps: so the copies stay equal, and slots
may go from task to task. The first task alone tells of failures and figures.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from headrace.chunk import visible
from headrace.errors import PlanError
from headrace.ops.broadcast import Broadcast
from headrace.ops.contract import Fault, Step
from headrace.ops.process.call import Call, many
from headrace.ops.process.guard import Guard, Maps
from headrace.ops.process.kept import KeptShared
from headrace.ops.process.keyed import KeyedProcess, keyless, no_key, own_attributes
from headrace.ops.process.work import in_turn
from headrace.rows import pylist, rows_of, table_of
from headrace.state.table import TableSpec

NO_KEY = "a control row has no key"
KEY, VALUE = "key", "value"


def table_name(name: str) -> str:
    """The table that holds a shared map."""
    return f"shared.{name}"


class Shared:
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

    def known(self, step: Step) -> Maps:
        """The maps as they are, each entry an object of its own."""
        return {name: self._read(name, step) for name in self._declared}

    def _read(self, name: str, step: Step) -> dict[Any, Any]:
        rows, make = self._tables[name].rows(step), self._declared[name].make
        values = pylist(rows.column(VALUE))
        keys = pylist(rows.column(KEY))
        return dict(zip(keys, values if make is None else map(make, values), strict=True))

    def apply(self, control: Sequence[pa.Table | None], step: Step) -> Maps:
        """The maps after this epoch's control rows, whose changes are kept."""
        if not any(rows is not None and rows.num_rows for rows in control):
            return self.known(step)
        calls = self._calls(control)
        call, faults = self._call(step), list[Fault]()
        maps = self.known(step)
        try:
            for port, row, time, _ in calls:
                self._one(maps, call, port, row, time)
            changes = self._changes(self.known(step), maps)
        except Exception:  # again, call by call
            call, maps = self._call(step), self.known(step)
            for port, row, time, place in calls:
                maps = self._carefully(maps, call, port, row, time, faults, place)
            changes = self._changes(self.known(step), maps)
        for name, (put, gone) in changes.items():
            self._tables[name].put(put, step)
            self._tables[name].delete(gone, step)
        if 0 in step.homes:
            step.faults.extend(faults)
            step.counts.update(call.counts)
        return maps

    def guard(self, maps: Maps, step: Step) -> Guard:
        """The maps for methods that may not change them."""
        nested = [n for n, d in self._declared.items() if pa.types.is_nested(d.type.item_type)]
        return Guard(maps, nested, lambda: self.known(step))

    def _call(self, step: Step) -> Call:
        call = Call(step.before, step.clock)
        call.no_timer = NO_KEY
        return call

    def _calls(self, control: Sequence[pa.Table | None]) -> list[tuple[int, Any, Any, pa.Table]]:
        rows = [rows_of(visible(t)) if t is not None else [] for t in control]
        found = []
        for port, index, time in in_turn(control):
            table = control[port]
            assert table is not None
            found.append((port, rows[port][index], time, table.slice(index, 1)))
        return found

    def _one(self, maps: Maps, call: Call, port: int, row: Any, time: int | None) -> None:
        kind = type(self._function)
        one = object.__new__(keyless(kind))
        one.__dict__ = {**own_attributes(self._function), **maps}
        call.input, call.time = self._names[port], time
        handler = getattr(kind, f"on_{call.input}")
        if many(handler(one, row, call)):
            raise PlanError(
                "HR-PROCESS-012",
                f"on_{call.input} gives rows, but a control row reaches every task, and each "
                "would give them",
                "Keep what it says in a hr.shared_map, and give rows in the other methods.",
            )
        for name in kind.values:
            if name in one.__dict__:
                raise no_key(kind.__name__, name)
        maps.update({name: dict(one.__dict__[name]) for name in maps})

    def _carefully(
        self,
        maps: Maps,
        call: Call,
        port: int,
        row: Any,
        time: Any,
        faults: list[Fault],
        place: pa.Table,
    ) -> Maps:
        before, counts = copy.deepcopy(maps), call.counts.copy()
        try:
            self._one(maps, call, port, row, time)
            self._changes(before, maps)
        except Exception as error:
            faults.append(Fault(place, error))
            call.counts = counts
            return before
        return maps

    def _changes(self, before: Maps, after: Maps) -> dict[str, tuple[pa.Table, pa.Table]]:
        """For each map the entries that are new or different, and the keys that are gone."""
        found = {}
        for name, table in self._tables.items():
            old, new = before[name], after[name]
            put = [(k, v) for k, v in new.items() if k not in old or old[k] != v]
            gone = [(k,) for k in old if k not in new]
            spec = table.spec
            entry = pa.schema([*spec.key, *spec.value])
            found[name] = (table_of(put, entry), table_of(gone, spec.key))
        return found


def _table(name: str, declared: KeptShared) -> Broadcast:
    kind = declared.type
    key, value = pa.schema([(KEY, kind.key_type)]), pa.schema([(VALUE, kind.item_type)])
    return Broadcast(table_name(name), key, value)
