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

from headrace.chunk import HASH, OFFSET, SOURCE, TIME, rows_of, table_of
from headrace.ops.contract import Fault, Step
from headrace.ops.grouping import group, in_order
from headrace.ops.keyed import KeyedProcess
from headrace.state.table import KeyedTable, TableSpec

VALUES = "values"
_PORT = "__port"


class Call:
    """What the user's function may ask about the call it is in."""

    __slots__ = ("input", "key", "time", "watermark")
    key: Any
    input: str
    time: int | None
    watermark: int


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

    def step(self, step: Step) -> None:
        arrived = [t for t in map(self._skeleton, range(len(step.inputs)), step.inputs) if t]
        if not arrived:
            return
        ordered = in_order(pa.concat_tables(arrived, promote_options="default"))
        found = group(ordered, [HASH, *self._key_names])
        objects = self._load(step.tables[VALUES], found.keys)
        self._run(step, ordered, found.codes, objects, rows_of(found.keys.select(self._key_names)))
        self._store(step.tables[VALUES], found.keys, objects)

    def _skeleton(self, port: int, rows: pa.Table | None) -> pa.Table | None:
        """Key, order and whereabouts of each row of one input: what all inputs share."""
        if rows is None or not rows.num_rows:
            return None
        hidden = [n for n in (TIME, SOURCE, OFFSET, HASH) if n in rows.column_names]
        table = rows.select(hidden)
        for name, column in zip(self._key_names, self._keys[port], strict=True):
            table = table.append_column(name, rows.column(column).cast(self._key.field(name).type))
        table = table.append_column(_PORT, pa.array(np.full(rows.num_rows, port, dtype=np.int32)))
        return table.append_column("__row", pa.array(np.arange(rows.num_rows)))

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
                setattr(one, name, column[i] if is_known else declared[name].start())
            objects.append(one)
        return objects

    def _run(
        self, step: Step, ordered: pa.Table, codes: np.ndarray, objects: list[Any], keys: list[Any]
    ) -> None:
        rows = [rows_of(_user(t)) if t is not None else [] for t in step.inputs]
        handlers = [_handler(type(self._function), n) for n in self._names]
        times = ordered.column(TIME).to_pylist() if TIME in ordered.column_names else None
        single = len(self._key_names) == 1
        call = Call()
        call.watermark = step.before
        outs: list[Any] = []
        sources: list[int] = []
        ports = ordered.column(_PORT).to_pylist()
        indexes = ordered.column("__row").to_pylist()
        for i, (code, port, index) in enumerate(zip(codes.tolist(), ports, indexes, strict=True)):
            call.key = keys[code][0] if single else tuple(keys[code])
            call.input = self._names[port]
            call.time = times[i] if times else None
            try:
                given = list(_many(handlers[port](objects[code], rows[port][index], call)))
            except Exception as error:
                arrived = step.inputs[port]
                assert arrived is not None
                step.faults.append(Fault(arrived.slice(index, 1), error))
                continue
            outs.extend(given)
            sources.extend([i] * len(given))
        if outs:
            step.out.append(self._emit(ordered, outs, sources))

    def _emit(self, ordered: pa.Table, outs: list[Any], sources: list[int]) -> pa.Table:
        chunk = table_of(outs, self._schema)
        origin = ordered.take(pa.array(sources))
        for name in (TIME, SOURCE, OFFSET):
            if name in origin.column_names:
                chunk = chunk.append_column(name, origin.column(name))
        return chunk

    def _store(self, table: KeyedTable, keys: pa.Table, objects: list[Any]) -> None:
        state = self._state
        if not state.names:
            return
        rows = keys
        for field in state:
            column = pa.array([getattr(o, field.name) for o in objects], field.type)
            rows = rows.append_column(field, column)
        table.put(rows)


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


def _user(table: pa.Table) -> pa.Table:
    return table.select([n for n in table.column_names if not n.startswith("__")])
