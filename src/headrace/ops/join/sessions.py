"""Rows of two inputs in windows that merge: what `windows.py` does for windows that do not.

Rows of both sides become rows of one kind, with a column that says whose they are, and go
through the operator for windows of time: a session of a key is made by all of them together.
When it is over and no late row can change it, its rows are taken apart again. State, merging
and what is late are that operator's; nothing is kept here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, TIME
from headrace.expr import parsed
from headrace.hashing import hash_keys
from headrace.kernel import Kernel, SelectStep, compile_chain
from headrace.ops.contract import Step
from headrace.ops.general_windows.operator import GeneralWindowOperator
from headrace.ops.general_windows.stored_rows import ROWS
from headrace.ops.join.columns import numbers
from headrace.ops.join.side import AT, NUMBER, Side, null_keys
from headrace.ops.join.view import SIDES, Held, held_view
from headrace.ops.join.windows import Placed, Windows
from headrace.ops.window.assigners import GAP, Assigner, Session
from headrace.ops.window.function import WindowedRows, WindowResults
from headrace.ops.window.trigger_base import Facts, Mask, Trigger
from headrace.ops.window.triggers import Windowing
from headrace.state.table import KeyedTable, TableSpec

_SIDE = "$side"
_OWN = "$own"  # zero, or what sets a row apart that has a null in its key
_SLOT = np.uint64(0xFFFFFFFF00000000)  # the part of a hash that says where a row is kept
_NOTHING = pa.schema([])


class Sessions:
    """`apart`: a row with a null in its key has a session of its own."""

    def __init__(
        self,
        keys: Sequence[Sequence[str]],
        inputs: Sequence[pa.Schema],
        window: Session,
        lateness: int,
        *,
        apart: bool,
    ) -> None:
        self._window, self._inputs, self._apart = window, inputs, apart
        self.wait = lateness + window.slack  # from the end that it shows until it is over
        differs = [] if isinstance(window.gap, int) else [pa.field(GAP, pa.int64())]
        self._sides = [
            Side(k, pa.schema([*s, *differs])) for k, s in zip(keys, inputs, strict=True)
        ]
        key = [*self._sides[0].key, pa.field(_OWN, pa.int64())]
        values = [
            f.with_name(_column(port, f.name))
            for port, side in enumerate(self._sides)
            for f in side.value
            if f.name != GAP
        ]
        self._schema = pa.schema([*key, pa.field(_SIDE, pa.int8()), *differs, *values])
        self._taken = _Taken()
        self._operator = GeneralWindowOperator(
            Windowing(window, _WhenForgotten(), lateness),
            {},
            (self._taken, None),
            [f.name for f in key],
            self._schema,
            _NOTHING,
        )

    def tables(self) -> tuple[TableSpec, ...]:
        return self._operator.tables()

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows of sessions that are not over."""
        kept = tables[ROWS].scan()
        parts = [
            Held(SIDES[port], side, self._as_held(port, kept))
            for port, side in enumerate(self._sides)
        ]
        return held_view(parts, since, until)

    def _as_held(self, port: int, kept: pa.Table) -> pa.Table:
        """The rows of one side among those that are kept of both."""
        side = self._sides[port]
        rows = kept.filter(pa.array(numbers(kept[_SIDE]) == port))
        names = {n: n for n in (*side.key.names, AT)}
        names |= {_column(port, n): n for n in side.value.names}
        return rows.select(list(names)).rename_columns(list(names.values()))

    # where the rows are

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        return self._operator.late(0, self.prepare(port, rows), watermark)

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """Rows with the gap after each, if it differs; raises if there is a row without."""
        gap, schema = self._window.gap, self._inputs[port]
        if isinstance(gap, int):
            return rows
        given, bad = _gaps(gap.sql(), schema).run(rows.select(schema.names))
        if bad:
            raise ValueError(bad[0][1])
        return rows.append_column(GAP, given.column(GAP))

    # one epoch

    def over(self, step: Step) -> list[Placed] | None:
        """Keep the rows that arrived; the rows of all sessions that are over now."""
        parts = [
            self._as_one(port, rows, step.epoch)
            for port, rows in enumerate(step.inputs)
            if rows is not None and rows.num_rows
        ]
        inner = replace(step, inputs=[pa.concat_tables(parts) if parts else None])
        self._taken.laid = None
        self._operator.step(inner)
        step.next = inner.next
        laid = self._taken.laid
        return None if laid is None else [self._placed(port, laid) for port in (0, 1)]

    def _as_one(self, port: int, rows: pa.Table, epoch: int) -> pa.Table:
        """Rows of one side in the form that both share."""
        side = self._sides[port]
        held, count = side.arrived(rows, epoch), rows.num_rows
        own = self._own(port, held, epoch)
        columns = {n: held.column(n) for n in side.key.names}
        columns |= {_column(port, n): held.column(n) for n in side.value.names}
        columns |= {_OWN: pa.array(own), _SIDE: pa.array(np.full(count, port, np.int8))}
        made = [columns.get(f.name, pa.nulls(count, f.type)) for f in self._schema]
        table = pa.Table.from_arrays(made, self._schema.names).cast(self._schema)
        hashes = _spread(numbers(held[HASH]), own)
        return table.append_column(HASH, pa.array(hashes)).append_column(TIME, held[AT])

    def _own(self, port: int, held: pa.Table, epoch: int) -> np.ndarray:
        """A number that no other row has, for those that are equal to none."""
        nulls = null_keys(held, self._sides[port].key.names) if self._apart else None
        if nulls is None:
            return np.zeros(held.num_rows, np.int64)
        return np.where(nulls, (epoch << 32) + 2 * numbers(held[NUMBER]) + port + 1, 0)

    def _placed(self, port: int, laid: WindowedRows) -> Placed:
        side, mine = self._sides[port], numbers(laid.rows.select([_SIDE])[_SIDE]) == port
        names = {n: n for n in (HASH, *side.key.names)}
        names |= {_column(port, n): n for n in side.value.names}
        rows = laid.rows.select(list(names)).rename_columns(list(names.values()))
        group = laid.numbers[mine]
        rows = rows.filter(pa.array(mine)).combine_chunks()
        return Placed(rows, group, laid.begins[group], laid.ends[group])


def windows_of(
    window: Assigner,
    lateness: int,
    keys: Sequence[Sequence[str]],
    inputs: Sequence[pa.Schema],
    *,
    apart: bool,
) -> Windows | Sessions:
    """What holds the rows of two inputs until their windows are over."""
    if isinstance(window, Session):
        return Sessions(keys, inputs, window, lateness, apart=apart)
    sides = [Side(k, s) for k, s in zip(keys, inputs, strict=True)]
    return Windows(sides, window, lateness)


class _WhenForgotten(Trigger):
    """Never before: a window shows what it has when no late row can change it any more."""

    def ready(self, f: Facts) -> Mask:
        return np.zeros(len(f), np.bool_)


class _Taken:
    """A function over windows that gives nothing and has them ready for the join."""

    schema = _NOTHING
    laid: WindowedRows | None = None

    def over(self, laid: WindowedRows) -> WindowResults:
        self.laid = laid
        return WindowResults(_NOTHING.empty_table(), np.zeros(0, np.int64))


@lru_cache(maxsize=64)
def _gaps(text: str, schema: pa.Schema) -> Kernel:
    """Compiled once per process."""
    gap = parsed(text).cast("bigint")
    return compile_chain([SelectStep(columns=((GAP, gap),))], schema)


def _column(port: int, name: str) -> str:
    """What a column of one side is called among those of both."""
    return name if name == GAP else f"{port}.{name}"


def _spread(hashes: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Rows that are apart get hashes of their own in the same slot: looking for one finds few."""
    if not own.any():
        return hashes
    mixed = (hashes & _SLOT) | (hash_keys([pa.array(own)]) & ~_SLOT)
    return np.where(own > 0, mixed, hashes)
