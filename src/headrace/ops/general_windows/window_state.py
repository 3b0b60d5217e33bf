"""The state of a window between epochs: its partials, and its trigger's facts.

Partials come in sets: `main` is what the user asked for, `since` counts from the last firing,
`ever` from the window's beginning, and `base` is what `ever` was at the last firing, where a
trigger compares with that. A set that was reset is null until the next row. Where windows
become one, partials merge, and of the facts the latest holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Column, Index, Mask, Times, flat, integers, valid
from headrace.chunk import TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.named import Aggregate, merge, part_names, result
from headrace.ops.tables import side_by_side, with_column
from headrace.ops.window.function import WindowResults

START, END = "$start", "$end"
PANES, FIRST, FIRED, EPOCH = "$panes", "$first", "$fired", "$epoch"
_NEW_WINDOW = {PANES: 0, FIRST: MAX_TIME, FIRED: MIN_TIME, EPOCH: -1}
EARLIEST, LATEST = "$earliest", "$latest"  # the event time of its results, where not its end
_NEW, _ROWS, _GROUP = "$new", "$rows", "__group"


@dataclass(frozen=True)
class WindowState:
    main: Mapping[str, Aggregate]
    since: Mapping[str, Aggregate]
    ever: Mapping[str, Aggregate]
    times: Sequence[str]  # what a trigger counts: how often a part of it has fired
    mode: str
    all: Mapping[str, Aggregate] = field(init=False)  # what is made of rows
    base: Mapping[str, Aggregate] = field(init=False)
    facts: Mapping[str, int] = field(init=False)  # with what they are in a new window

    def __post_init__(self) -> None:
        object.__setattr__(self, "all", {**self.main, **self.since, **self.ever})
        compared = [n.removesuffix(".first") for n in self.ever if n.endswith(".first")]
        object.__setattr__(self, "base", {base_of(n): self.ever[n] for n in compared})
        object.__setattr__(self, "facts", {**_NEW_WINDOW, **dict.fromkeys(self.times, 0)})

    def fields(self, input: pa.Schema) -> list[pa.Field]:
        aggs = {**self.all, **self.base}
        parts = [f for n, a in aggs.items() for f in a.partial_fields(n, _wide(input))]
        return [*parts, *(pa.field(n, pa.int64()) for n in self.facts)]

    def opened(self, windows: pa.Table, clock: int) -> pa.Table:
        """Windows of which only partials are known, with the facts of a new window."""
        count = windows.num_rows
        for base, ever in self._bases():
            kind = windows.schema.field(ever).type
            windows = windows.append_column(base, pa.nulls(count, kind))
        for name, value in {**self.facts, FIRST: clock}.items():
            windows = windows.append_column(name, pa.array(np.full(count, value, np.int64)))
        return windows

    def begun(self, windows: pa.Table, input: pa.Schema, clock: int) -> pa.Table:
        """Windows of which only `main` is known: each has one row, which it has not shown."""
        for name, agg in {**self.since, **self.ever}.items():
            counts = name in (_NEW, _ROWS)
            parts = self._nothing(agg, input, windows.num_rows)
            ones = [pa.array(np.ones(windows.num_rows, np.int64))]
            for part, column in zip(part_names(name, agg), ones if counts else parts, strict=True):
                windows = windows.append_column(part, column)
        return self.opened(windows, clock)

    def watching(self, windows: pa.Table, input: pa.Schema) -> pa.Table:
        """Windows of another trigger: what it watches begins anew, the others stay."""
        count, own = windows.num_rows, {_NEW, _ROWS, *self.main}
        columns = dict(zip(windows.column_names, windows.columns, strict=True))
        for name, agg in {**self.all, **self.base}.items():
            if name not in own:
                parts = self._nothing(agg, input, count)
                columns |= zip(part_names(name, agg), parts, strict=True)
        columns |= {name: pa.array(np.zeros(count, np.int64)) for name in self.times}
        return pa.table(columns)

    def _nothing(self, agg: Aggregate, input: pa.Schema, count: int) -> list[Column]:
        return agg.nothing(_wide(input), count)

    def _bases(self) -> list[tuple[str, str]]:
        """Columns of `base`, each with that of `ever` which it is copied from."""
        pairs = ((n, a.column, a) for n, a in self.base.items())
        return [
            pair
            for base, ever, a in pairs
            for pair in zip(part_names(base, a), part_names(str(ever), a), strict=True)
        ]

    def fold(self, stored: pa.Table, fresh: pa.Table, group: Times, identity: pa.Table) -> pa.Table:
        """Stored windows and those that arrived, merged by group into the windows of `identity`.

        `group` has the numbers of the stored ones first, then of the fresh ones.
        """
        both = pa.concat_tables([stored, fresh.select(stored.column_names)])
        both = both.append_column(_GROUP, pa.array(group))
        live = np.concatenate([unreset(stored), np.ones(fresh.num_rows, np.bool_)])
        folded = identity
        for aggs, mask in self._sets(live):
            if aggs:
                part = both if mask.all() else both.filter(pa.array(mask))
                folded = side_by_side(folded, _in_order(merge(part, [_GROUP], aggs)))
        for name, values in self._facts(stored, group, identity.num_rows, fresh, live).items():
            folded = folded.append_column(name, pa.array(values))
        for name in stored.column_names:
            if name not in folded.column_names:  # what was emitted, and a function's values
                folded = folded.append_column(name, _inherited(stored, name, group, folded))
        return folded.select(stored.column_names)

    def _sets(self, live: Mask) -> list[tuple[Mapping[str, Aggregate], Mask]]:
        recent, ever = dict(self.since), {**self.ever, **self.base}
        (recent if self.mode == "delta" else ever).update(self.main)
        return [(recent, live), (ever, np.ones(len(live), np.bool_))]

    def _facts(
        self, stored: pa.Table, group: Times, count: int, fresh: pa.Table, live: Mask
    ) -> dict[str, Times]:
        target = group[: stored.num_rows]
        facts = {n: np.full(count, v, np.int64) for n, v in self.facts.items()}
        for name in (PANES, FIRED, EPOCH, *self.times):
            np.maximum.at(facts[name], target, stored.column(name).to_numpy())
        both = np.concatenate([stored.column(FIRST).to_numpy(), fresh.column(FIRST).to_numpy()])
        np.minimum.at(facts[FIRST], group[live], both[live])
        return facts

    def reset(
        self, windows: pa.Table, fired: Mask, counts: Mapping[str, Mask], clock: int, epoch: int
    ) -> pa.Table:
        """The windows after those that `fired` have emitted."""
        sets = [self.since, self.main] if self.mode == "delta" else [self.since]
        names = [p for aggs in sets for n, a in aggs.items() for p in part_names(n, a)]
        empty = pa.array(fired)
        for name in names:
            windows = _changed(windows, name, pc.if_else(empty, None, windows.column(name)))
        for base, ever in self._bases():
            emitted = pc.if_else(empty, windows.column(ever), windows.column(base))
            windows = _changed(windows, base, emitted)
        for name, value in {FIRST: MAX_TIME, FIRED: clock, EPOCH: epoch}.items():
            old = windows.column(name).to_numpy()
            windows = _changed(windows, name, pa.array(np.where(fired, value, old)))
        for name, mask in {PANES: fired, **counts}.items():
            more = windows.column(name).to_numpy() + (fired & mask)
            windows = _changed(windows, name, pa.array(more))
        return windows

    def results(self, windows: pa.Table, aggs: Mapping[str, Aggregate]) -> pa.Table:
        """The values of `aggs` for each window."""
        names = [p for n, a in aggs.items() for p in part_names(n, a)]
        return result(windows.select(names), aggs)


def _wide(input: pa.Schema) -> pa.Schema:
    """What aggregates of a window may be of: its rows, and their times."""
    return pa.schema([*input, pa.field(TIME, pa.int64())])


def base_of(name: str) -> str:
    return f"{name}.base"


def unreset(windows: pa.Table) -> Mask:
    """Which windows have rows that were not emitted yet."""
    new = next(n for n in windows.column_names if n.startswith(f"{_NEW}__"))
    live: Mask = pc.is_valid(flat(windows.column(new))).to_numpy(zero_copy_only=False)
    return live


def _in_order(merged: pa.Table) -> pa.Table:
    number = merged.column(_GROUP).to_numpy()
    merged = merged.drop_columns([_GROUP])
    if np.array_equal(number, np.arange(len(number))):
        return merged
    return merged.take(pa.array(np.argsort(number)))


def _changed(windows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    kind = windows.schema.field(name).type
    return with_column(windows, name, column.cast(kind))


def _inherited(stored: pa.Table, name: str, group: Times, folded: pa.Table) -> pa.Array:
    """A column of the windows that were merged into these; null where there is none.

    What was emitted stays with windows that did not change; a function's values come from the
    one that fired last.
    """
    target = group[: stored.num_rows]
    heirs = np.argsort(stored.column(EPOCH).to_numpy(), kind="stable")
    if name.startswith(WAS):
        heirs = np.flatnonzero(same_bounds(stored, folded, target))
    at = np.full(folded.num_rows, -1, np.int64)
    at[target[heirs]] = heirs  # the last to be written is the last that fired
    return flat(stored.column(name)).take(pa.array(at, mask=at < 0))


def same_bounds(windows: pa.Table, merged: pa.Table, target: Times) -> Mask:
    """Which windows have the bounds of the merged window that each became part of."""
    same = np.ones(windows.num_rows, np.bool_)
    for bound in (TIME, START):
        same &= windows.column(bound).to_numpy() == merged.column(bound).to_numpy()[target]
    return same


# What windows have emitted, stored so that it can be retracted: for mode "retract".
#
# A result is retracted as it was emitted, its pane and timing included, so that "+" and "-"
# rows cancel out. Only a window that is still the same has something to retract; one that
# became part of another retracts it at once.


WAS = "$was"  # the timing of what was emitted; null before the first firing


class Retraction:
    def __init__(self, values: Sequence[pa.Field]) -> None:
        self._values = list(values)

    def fields(self) -> list[pa.Field]:
        """The columns of what a window last emitted."""
        columns = [pa.field(_column(f.name), f.type) for f in self._values]
        return [pa.field(WAS, pa.int8()), *columns]

    def emitted(self, windows: pa.Table) -> Mask:
        """Which windows have something to retract."""
        return valid(flat(windows.column(WAS)))

    def values(self, windows: pa.Table) -> pa.Table:
        names = [f.name for f in self._values]
        return windows.select([_column(n) for n in names]).rename_columns(names)

    def timing(self, windows: pa.Table) -> Index:
        return integers(windows.column(WAS))

    def remember(
        self, windows: pa.Table, fire: Mask, results: WindowResults, timing: Index
    ) -> pa.Table:
        """The windows after those that `fire` have emitted their results, which may be none."""
        at = np.full(windows.num_rows, -1, np.int64)
        at[np.flatnonzero(fire)[results.windows]] = np.arange(len(results.windows))
        place = pa.array(at, mask=at < 0)
        values = results.values
        new = {_column(f.name): flat(values.column(f.name)).take(place) for f in self._values}
        new[WAS] = pa.array(timing, pa.int8(), mask=at < 0)
        for name, changed in new.items():
            column = pc.if_else(pa.array(fire), changed, windows.column(name))
            windows = with_column(windows, name, column)
        return windows


def _column(name: str) -> str:
    return f"{WAS}.{name}"
