"""Keyed process functions: the user's code sees one key's rows, one at a time, in order.

Each key touched in the epoch gets its own shallow copy of the user's object, so that
`self.hot` is that key's value; after the loop the declared values are read back by column.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, OFFSET, SOURCE, TIME, visible
from headrace.ops.contract import Fault, Step
from headrace.ops.grouping import Grouped, group, in_order
from headrace.ops.keyed import KeyedProcess
from headrace.rows import collector_paused, rows_of, table_of
from headrace.state.table import KeyedTable, TableSpec

VALUES = "values"
_PORT, _ROW = "__port", "__row"


class Call:
    """What the user's function may ask about the call it is in."""

    __slots__ = ("input", "key", "time", "watermark")
    key: Any
    input: str
    time: int | None
    watermark: int


class _Again(Exception):
    """A call failed: go through the rows again, with care."""


class ProcessOperator:
    version = 1

    def __init__(
        self,
        function: KeyedProcess,
        names: Sequence[str],
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:
        self._function, self._state, self._schema = function, function.state(), output
        self._names, self._keys = names, keys
        self._key_names = [f"k{i}" for i in range(len(keys[0]))]
        types = [inputs[0].field(k).type for k in keys[0]]
        self._key = pa.schema(list(zip(self._key_names, types, strict=True)))

    def tables(self) -> tuple[TableSpec, ...]:
        return (TableSpec(VALUES, self._key, self._state),)

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return None

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        return rows

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    @collector_paused()
    def step(self, step: Step) -> None:
        parts = [self._skeleton(port, rows) for port, rows in enumerate(step.inputs)]
        arrived = [part for part in parts if part is not None]
        if not arrived:
            return
        ordered = in_order(pa.concat_tables(arrived, promote_options="default"))
        found = group(ordered, [HASH, *self._key_names])
        for check in (False, True):
            # Only if a call fails or does not fit its columns is every call checked by itself.
            objects = self._load(step.tables[VALUES], found.keys)
            faults: list[Fault] = []
            try:
                out = self._run(step, found, objects, faults, check)
                self._store(step.tables[VALUES], found.keys, objects)
            except (_Again, ValueError):
                if check:
                    raise
                continue
            break
        step.faults.extend(faults)
        if out is not None:
            step.out.append(out)

    def _skeleton(self, port: int, rows: pa.Table | None) -> pa.Table | None:
        """Key, order and whereabouts of each row of one input: what all inputs share."""
        if rows is None or not rows.num_rows:
            return None
        hidden = [n for n in (TIME, SOURCE, OFFSET, HASH) if n in rows.column_names]
        table = rows.select(hidden)
        for name, column in zip(self._key_names, self._keys[port], strict=True):
            table = table.append_column(name, rows.column(column).cast(self._key.field(name).type))
        table = table.append_column(_PORT, pa.array(np.full(rows.num_rows, port, dtype=np.int32)))
        return table.append_column(_ROW, pa.array(np.arange(rows.num_rows)))

    def _load(self, table: KeyedTable, keys: pa.Table) -> list[Any]:
        held, known = table.get(keys)
        columns = [c.to_pylist() for c in held.columns]
        names = held.column_names
        prototype = self._function
        declared = type(prototype).values
        objects = []
        for i, is_known in enumerate(known.tolist()):
            one = copy.copy(prototype)
            for name, column in zip(names, columns, strict=True):
                start = declared[name].loaded(column[i]) if is_known else declared[name].start()
                setattr(one, name, start)
            objects.append(one)
        return objects

    def _run(
        self, step: Step, found: Grouped, objects: list[Any], faults: list[Fault], check: bool
    ) -> pa.Table | None:
        """Call the user's function for every row, in order; what it gave."""
        ordered = found.rows
        rows = [rows_of(visible(t)) if t is not None else [] for t in step.inputs]
        handlers = [_handler(type(self._function), n) for n in self._names]
        keys = self._keys_of(found.keys)
        times = ordered.column(TIME).to_pylist() if TIME in ordered.column_names else None
        call = Call()
        call.watermark = step.before
        outs: list[Any] = []
        sources: list[int] = []
        ports = ordered.column(_PORT).to_pylist()
        indexes = ordered.column(_ROW).to_pylist()
        for i, (code, port, index) in enumerate(
            zip(found.codes.tolist(), ports, indexes, strict=True)
        ):
            call.key = keys[code]
            call.input = self._names[port]
            call.time = times[i] if times else None
            before = copy.deepcopy(vars(objects[code])) if check else {}
            try:
                given = list(_many(handlers[port](objects[code], rows[port][index], call)))
                if check:
                    table_of(given, self._schema)
                    self._values([objects[code]])
            except Exception as error:
                if not check:
                    raise _Again from error
                vars(objects[code]).clear()  # the key stays as it was before this row
                vars(objects[code]).update(before)
                arrived = step.inputs[port]
                assert arrived is not None
                faults.append(Fault(arrived.slice(index, 1), error))
                continue
            outs.extend(given)
            sources.extend([i] * len(given))
        return self._emit(ordered, outs, sources) if outs else None

    def _keys_of(self, keys: pa.Table) -> list[Any]:
        rows = rows_of(keys.select(self._key_names))
        return [row[0] for row in rows] if len(self._key_names) == 1 else list(map(tuple, rows))

    def _emit(self, ordered: pa.Table, outs: list[Any], sources: list[int]) -> pa.Table:
        chunk = table_of(outs, self._schema)
        origin = ordered.take(pa.array(sources))
        for name in (TIME, SOURCE, OFFSET):
            if name in origin.column_names:
                chunk = chunk.append_column(name, origin.column(name))
        return chunk

    def _store(self, table: KeyedTable, keys: pa.Table, objects: list[Any]) -> None:
        values = self._values(objects)
        rows = keys
        for field in values.schema:
            rows = rows.append_column(field, values.column(field.name))
        if values.column_names:
            table.put(rows)

    def _values(self, objects: list[Any]) -> pa.Table:
        names = self._state.names
        if not names:
            return pa.table({})
        return table_of([tuple(getattr(o, n) for n in names) for o in objects], self._state)


def _handler(kind: type, name: str) -> Any:
    handler = getattr(kind, f"on_{name}", None)
    return handler if handler is not None else kind.on_row  # type: ignore[attr-defined]


def _many(given: Any) -> Iterable[Any]:
    """Nothing, one row, a list of rows or a generator: as rows."""
    if given is None:
        return ()
    if isinstance(given, list | Iterator):
        return given
    return (given,)
