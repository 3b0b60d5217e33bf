"""What is stored of a step compared with what its past rows make of it, and joined with that.

Key by key and window by window: what is there must be in both, and each aggregate that goes on
must have the same result. Only then the columns of the new aggregates are taken over.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask, flat
from headrace.chunk import HASH, TIME
from headrace.clock import MIN_TIME
from headrace.driver.rewritten_runs import State, fitted
from headrace.errors import StateError
from headrace.ops.agg.named import columns_of, part_names
from headrace.plan.aggregate_changes import aggregate_sources
from headrace.plan.evolution import ONLY_NEW
from headrace.plan.nodes import Stateful
from headrace.plan.recomputation import counts_rows, oldest_needed, oldest_used, proves
from headrace.state.manifest import StepFacts, table_key
from headrace.state.runs import RunCache, RunWriter
from headrace.state.spec import GONE, TableSpec
from headrace.state.store import Segment, SlotState, open_table

_AT_ONCE = 1_000_000  # rows compared at a time
_COUNT = "$rows"  # of windows that may fire more than once: always stored


@dataclass(frozen=True)
class Recomputed:
    """The state that the past rows of a step have made."""

    state: State
    folder: Path
    slots: int
    as_many: bool  # as many rows have come to the step as before


def taken_over(
    node: Stateful,
    old: StepFacts,
    before: State,
    found: Recomputed,
    writer: RunWriter,
    cache: RunCache,
) -> State:
    """The tables of the step that hold aggregates, with the new ones as past rows make them."""
    sources = aggregate_sources(node, old.shape or {})
    join = _Join(node, old, sources, found, writer, cache)
    state = dict[str, Any]()
    for spec in node.operator().tables():
        if join.holds_aggregates(spec):
            table = table_key(node.name, spec.name)
            state[table] = join.table(spec, before.get(table), found.state.get(table))
    return state


class _Join:
    def __init__(
        self,
        node: Stateful,
        old: StepFacts,
        sources: Mapping[str, str | None],
        found: Recomputed,
        writer: RunWriter,
        cache: RunCache,
    ) -> None:
        self._node, self._watermark, self._found = node, old.watermark, found
        self._over = MIN_TIME if old.over is None else old.over
        self._writer, self._before = writer, cache
        self._cache = RunCache(found.folder)
        aggs = node.what.aggregates
        self._new = {n: a for n, a in aggs if sources[n] is None}
        self._same = {n: a for n, a in aggs if sources[n] is not None and proves(a)}

    def holds_aggregates(self, spec: TableSpec) -> bool:
        name, agg = next(iter(self._new.items()))
        return part_names(name, agg)[0] in spec.value.names

    def table(
        self, spec: TableSpec, before: Mapping[str, Any] | None, found: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        slots = self._found.slots
        stored, past = (SlotState.from_json(dict(s)) if s else SlotState.empty(slots)
                        for s in (before, found))  # fmt: skip
        self._refuse_uncounted(spec)
        segments = list[Segment]()
        for lo, hi in _stretches(slots, max(stored.rows(), past.rows())):
            rows = open_table(spec, stored, lo, hi, slots, self._before).scan()
            values = open_table(spec, past, lo, hi, slots, self._cache)
            present = self._compared(spec, rows, values.scan(), values.get)
            run = self._run(spec, rows, *present)
            refs = (self._writer.add(run, lo, hi),) if run.num_rows else ()
            floor = min((s.floor for s in stored.part(lo, hi).segments), default=MIN_TIME)
            segments.append(Segment(lo, hi, refs, floor))
        return SlotState(tuple(segments)).to_json()

    def _refuse_uncounted(self, spec: TableSpec) -> None:
        """Rows are counted for each key and window, or at least for the step."""
        counted = any(map(counts_rows, self._same.values()))
        if not (counted or _counts(spec) or self._found.as_many):
            raise not_of_past(
                self._node.name,
                "another number of rows comes to the step than has come to it before",
            )

    def _compared(
        self, spec: TableSpec, rows: pa.Table, past: pa.Table, get: Any
    ) -> tuple[pa.Table, Mask]:
        """What past rows make of the stored keys and windows, and which of them there are."""
        values, present = get(rows.select(spec.identity.names))
        must = np.ones(rows.num_rows, np.bool_)
        if spec.timed:
            must = rows.column(TIME).to_numpy() >= oldest_used(self._node, self._watermark)
            needed = max(oldest_needed(self._node, self._watermark), self._over)
            past = past.filter(pa.array(past.column(TIME).to_numpy() >= needed))
        missing = np.flatnonzero(must & ~present)
        if len(missing):
            raise self._differs(spec, rows, missing[0], "is stored, and no past row is of it")
        if past.num_rows != must.sum():
            raise not_of_past(
                self._node.name, f"past rows are of {past.num_rows - must.sum():,} keys or windows "
                "that are not stored"
            )  # fmt: skip
        self._check(spec, rows.filter(pa.array(must)), values.filter(pa.array(must)))
        return values, present

    def _check(self, spec: TableSpec, rows: pa.Table, values: pa.Table) -> None:
        results = [
            (name, *(agg.synopsis.result(columns_of(t, name, agg)) for t in (rows, values)))
            for name, agg in self._same.items()
        ]
        results += [(_COUNT, rows.column(c), values.column(c)) for c in _counts(spec)]
        for name, was, now in results:
            other = np.flatnonzero(~_equal(flat(was), flat(now)))
            if len(other):
                at = other[0].item()
                said = "the number of rows" if name == _COUNT else f"{name!r}"
                what = f"has {said} {was[at].as_py()!r}, and of past rows it is {now[at].as_py()!r}"
                raise self._differs(spec, rows, at, what)

    def _differs(self, spec: TableSpec, rows: pa.Table, at: int, what: str) -> StateError:
        names = [n for n in spec.identity.names if n != HASH]
        place = ", ".join(f"{_shown(n)} {rows.column(n)[int(at)].as_py()!r}" for n in names)
        return not_of_past(self._node.name, f"what is stored of {place or 'all rows'} {what}")

    def _run(self, spec: TableSpec, rows: pa.Table, values: pa.Table, present: Mask) -> pa.Table:
        """The stored rows with the columns of the new aggregates, as a run."""
        for part in self._parts():
            at = rows.schema.get_field_index(part)
            column = _chosen(flat(values.column(part)), flat(rows.column(part)), present)
            rows = rows.set_column(at, part, column)
        rows = rows.append_column(GONE, pa.repeat(False, rows.num_rows))
        return fitted(spec, lambda run: run, rows)

    def _parts(self) -> Iterator[str]:
        for name, agg in self._new.items():
            yield from part_names(name, agg)


def not_of_past(step: str, because: str) -> StateError:
    return StateError(
        "HR-EVOLVE-009",
        f"the new aggregates of {step!r} cannot be computed of past rows: {because}",
        "The inputs have not the rows any more that were read, or the program makes other rows of "
        f"them before this step. Nothing was changed. {ONLY_NEW}",
    )


def _counts(spec: TableSpec) -> list[str]:
    return [n for n in spec.value.names if n.startswith(f"{_COUNT}__")]


def _shown(name: str) -> str:
    return {TIME: "time"}.get(name, name.removeprefix("$"))


def _stretches(slots: int, rows: int) -> Iterator[tuple[int, int]]:
    """Neighbouring slots, so many that their rows can be compared at once."""
    step = max(1, slots * _AT_ONCE // max(rows, 1))
    yield from ((lo, min(lo + step, slots)) for lo in range(0, slots, step))


def _chosen(new: pa.Array, old: pa.Array, present: Mask) -> pa.Array:
    if present.all():
        return new
    place = np.where(present, 0, len(new)) + np.arange(len(new))
    return pa.concat_arrays([new, old.cast(new.type)]).take(pa.array(place))


def _equal(a: pa.Array, b: pa.Array) -> Mask:
    """Where two columns are the same; so are nulls, and NaN is itself."""
    if pa.types.is_nested(a.type):
        pairs = zip(a.to_pylist(), b.to_pylist(), strict=True)
        return np.array([repr(x) == repr(y) for x, y in pairs], np.bool_)
    both = pc.fill_null(pc.equal(a, b), False)
    both = pc.or_(both, pc.and_(pc.is_null(a), pc.is_null(b)))
    if pa.types.is_floating(a.type):
        nans = pc.fill_null(pc.and_(pc.is_nan(a), pc.is_nan(b)), False)
        both = pc.or_(both, nans)
    same: Mask = both.to_numpy(zero_copy_only=False).astype(np.bool_)
    return same
