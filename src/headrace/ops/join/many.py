"""Joins of many streams: rows with the same key, one of each stream, all near each other.

A combination comes out when its last row arrives, with the latest of its times. It is found
from the first input that has a new row in it, so it is found once. Those of left and full
joins that lack a stream are in `partial.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.ops.agg.groups import Index, Mask
from headrace.ops.contract import Step
from headrace.ops.join.columns import numbers
from headrace.ops.join.interval import LEAST, passed
from headrace.ops.join.kept import Kept
from headrace.ops.join.layout import Columns, Layout
from headrace.ops.join.pairs import meeting, shared_numbers
from headrace.ops.join.partial import Partial
from headrace.ops.join.side import AT, Side
from headrace.ops.join.view import Held, held_view
from headrace.state.table import KeyedTable, TableSpec

MANY_HOWS = ("inner", "left", "full")


@dataclass(frozen=True)
class ManyJoin:
    """No two rows of a result are more than `within` ms apart."""

    how: str
    names: tuple[str, ...]
    within: int
    lateness: int
    columns: Columns
    rows: tuple[str, ...] = ()

    kind = "join"
    endless = False
    needs_time = True
    has_late = True
    functions: tuple[Callable[..., Any], ...] = ()

    def __str__(self) -> str:
        late = f", lateness {pretty(self.lateness)}" if self.lateness else ""
        return f"{self.how} of {', '.join(self.names)} within {pretty(self.within)}{late}"

    def shape(self) -> dict[str, Any]:
        said = {"how": self.how, "names": list(self.names), "within": self.within}
        return said | {"rows": list(self.rows)}

    def operator(
        self, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema], output: pa.Schema
    ) -> ManyJoinOperator:
        return ManyJoinOperator(self, keys, inputs, output)


@dataclass(frozen=True, slots=True)
class _Input:
    """The rows of one input in this epoch, old ones first."""

    rows: pa.Table
    number: Index
    at: Index
    old: int

    def only_old(self) -> _Input:
        return _Input(self.rows, self.number[: self.old], self.at[: self.old], self.old)


class ManyJoinOperator:
    version = 1

    def __init__(
        self, spec: ManyJoin, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema],
        output: pa.Schema,
    ) -> None:  # fmt: skip
        self._spec, self._layout = spec, Layout(spec.columns, output)
        self._bucket = max(spec.within // 2, LEAST)
        self._sides = [Side(k, s) for k, s in zip(keys, inputs, strict=True)]
        named = zip(spec.names, self._sides, strict=True)
        self._kept = [Kept(name, side, self._bucket) for name, side in named]
        self._partial: Partial | None = None
        if spec.how != "inner":
            self._partial = Partial(
                spec.how, spec.within, spec.lateness, spec.names, self._sides, self._kept,
                self._layout,
            )  # fmt: skip

    def tables(self) -> tuple[TableSpec, ...]:
        more = () if self._partial is None else self._partial.tables
        return *(kept.spec for kept in self._kept), *more

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The rows that are kept of each input, also those without a key that wait."""
        parts = []
        named = zip(self._spec.names, self._sides, self._kept, strict=True)
        for port, (name, side, kept) in enumerate(named):
            rows = kept.rows(tables)
            if self._partial is not None:
                rows = pa.concat_tables([rows, self._partial.keyless(port, tables)])
            parts.append(Held(name, side, rows))
        return held_view(parts, since, until)

    def late(self, port: int, rows: pa.Table, watermark: int) -> Mask | None:
        floor = passed(watermark, self._spec.lateness)
        return None if floor == MIN_TIME else numbers(rows[TIME]) < floor

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        if self._partial is not None and self._partial.alone(port):
            return rows
        return self._sides[port].without_nulls(rows)

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        return prepared

    def step(self, step: Step) -> None:
        arrived = [s.arrived(rows, step.epoch, self._bucket)
                   for s, rows in zip(self._sides, step.inputs, strict=True)]  # fmt: skip
        floor = passed(step.after, self._spec.lateness)
        if self._partial is not None:
            arrived = self._partial.add(arrived, step)
        if any(rows.num_rows for rows in arrived):
            inputs = self._gather(arrived, step)
            for kept, rows in zip(self._kept, arrived, strict=True):
                kept.add(rows, step)
            for port in range(len(inputs)):
                self._combine(inputs, port, step)
        stays = self._spec.within
        if self._partial is not None:
            self._partial.give(floor, step)
            stays *= 2  # a row may belong to what begins up to `within` after it
        for kept in self._kept:
            kept.expire(floor - stays if MIN_TIME < floor < MAX_TIME else floor, step)

    def _gather(self, arrived: list[pa.Table], step: Step) -> list[_Input]:
        within, identity = self._spec.within, self._sides[0].identity
        old = []
        for port, kept in enumerate(self._kept):
            others = [r.select([*identity, AT]) for i, r in enumerate(arrived) if i != port]
            old.append(kept.near(pa.concat_tables(others), -within, within, step))
        rows = [pa.concat_tables(pair).combine_chunks() for pair in zip(old, arrived, strict=True)]
        number = shared_numbers(rows, identity)
        return [_Input(r, n, numbers(r[AT]), o.num_rows)
                for r, n, o in zip(rows, number, old, strict=True)]  # fmt: skip

    def _combine(self, inputs: list[_Input], first: int, step: Step) -> None:
        """Give the combinations whose first input with a new row is this one."""
        begin, within = inputs[first], self._spec.within
        chosen = {first: np.arange(begin.old, len(begin.at))}
        low = high = begin.at[begin.old :]
        number = begin.number[begin.old :]
        for port, one in enumerate(inputs):
            if port == first:
                continue
            other = one.only_old() if port < first else one
            row, at = meeting(number, high - within, low + within, other.number, other.at).pairs()
            chosen = {p: rows[row] for p, rows in chosen.items()} | {port: at}
            number, times = number[row], other.at[at]
            low, high = np.minimum(low[row], times), np.maximum(high[row], times)
        if len(number):
            at_each = [chosen[port] for port in range(len(inputs))]
            parts = [one.rows for one in inputs]
            step.out.append(self._layout.pairs(parts, at_each, high + self._spec.lateness))
