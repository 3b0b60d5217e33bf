"""Windows that overlap hundreds of times, from blocks of panes, against a plain model."""

from __future__ import annotations

import os
from collections import defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.agg.named import count, last, max, sum
from headrace.ops.contract import EpochStep
from headrace.ops.panes import operator as coarse_panes
from headrace.ops.panes.operator import PaneOperator, panes_per_block
from headrace.ops.window.aligned import Window
from headrace.schema import TIMESTAMP
from headrace.state.table import KeyedTable

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "60"))
INPUT = pa.schema([("k", pa.int64()), ("v", pa.int64())])
AGGS = {"n": count(), "total": sum("v"), "most": max("v"), "latest": last("v")}
OUTPUT = pa.schema(
    [("k", pa.int64()), ("window_start", TIMESTAMP), ("window_end", TIMESTAMP)]
    + [(name, pa.int64()) for name in AGGS]
)
Rows = list[tuple[int, int, int]]  # key, value, time


def model(window: Window, epochs: list[tuple[Rows, int]]) -> list[tuple[Any, ...]]:
    """Every row in every window that is open when it comes; a window shows when it is passed."""
    held: dict[tuple[int, int], list[tuple[int, int, int]]] = defaultdict(list)
    found, watermark, place = [], MIN_TIME, 0
    for rows, after in epochs:
        for key, value, time in rows:
            place += 1
            for start, end in window.assign(time):
                if end > watermark:
                    held[key, start].append((time, place, value))
        watermark = after if after > watermark else watermark
        for key, start in [w for w in held if w[1] + window.size <= watermark]:
            values = [v for _, _, v in sorted(held.pop((key, start)))]
            total = values[0]
            for value in values[1:]:
                total += value
            most = sorted(values)[-1]
            found.append((key, start, start + window.size, len(values), total, most, values[-1]))
    return sorted(found)


def run(window: Window, epochs: list[tuple[Rows, int]]) -> list[tuple[Any, ...]]:
    """The operator, its state carried from epoch to epoch as runs."""
    runs: dict[str, list[pa.Table]] = defaultdict(list)
    floors: dict[str, int] = defaultdict(lambda: MIN_TIME)
    found, watermark, place = [], MIN_TIME, 0
    for number, (rows, to) in enumerate(epochs):
        operator = PaneOperator(window, AGGS, ["k"], INPUT, OUTPUT)
        after = to if to > watermark else watermark
        chunk = _chunk(rows, place)
        place += len(rows)
        late = operator.late(0, chunk, watermark)
        chunk = chunk if late is None else chunk.filter(pa.array(~late))
        sent = operator.combine(0, operator.prepare(0, chunk)) if chunk.num_rows else None
        tables = {s.name: KeyedTable(s, runs[s.name], floors[s.name]) for s in operator.tables()}
        assert ("blocks" in tables) == (coarse_panes.panes_per_block(window) is not None)
        step = EpochStep([sent], tables, watermark, after, 0, number)
        operator.step(step)
        for name, table in tables.items():
            changes = table.changes()
            runs[name] = [*([] if changes is None else [changes]), *runs[name]]
            floors[name] = table.floor
        found += [row for out in step.out for row in _plain(out)]
        watermark = after
    return sorted(found)


def _chunk(rows: Rows, place: int) -> pa.Table:
    keys, values, times = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64()),
            "__t": pa.array(times, pa.int64()),
            "__s": pa.array([0] * len(rows), pa.int32()),
            "__o": pa.array(range(place, place + len(rows)), pa.int64()),
        }
    )  # fmt: skip


def _plain(out: pa.Table) -> list[tuple[Any, ...]]:
    columns = [out.column(n).cast(pa.int64()).to_pylist() for n in OUTPUT.names]
    return [(k, s // 1_000, e // 1_000, *rest) for k, s, e, *rest in zip(*columns, strict=True)]


@st.composite
def stories(draw: st.DrawFn) -> tuple[Window, list[tuple[Rows, int]]]:
    slide = draw(st.sampled_from([1, 7, 1_000]))
    overlaps = draw(st.sampled_from([4, 6, 16, 36, 60]))
    window = Window(slide * overlaps, slide, draw(st.integers(0, slide - 1)))
    now, epochs = 0, []
    for _ in range(draw(st.integers(1, 6))):
        ago = st.integers(-2 * window.size, 3 * slide)
        row = st.tuples(st.integers(0, 3), st.integers(-5, 5), ago.map(lambda a, n=now: n + a))
        now += slide * draw(st.sampled_from([0, 1, 3, overlaps, 5 * overlaps]))
        epochs.append((draw(st.lists(row, max_size=8)), now - draw(st.integers(0, slide))))
    return window, [*epochs, ([], MAX_TIME)]


@settings(max_examples=EXAMPLES, deadline=None)
@given(story=stories())
def test_blocks_of_panes_give_the_windows_that_rows_are_in(story):
    before, coarse_panes._ENOUGH = coarse_panes._ENOUGH, 4
    try:
        assert run(*story) == model(*story)
    finally:
        coarse_panes._ENOUGH = before


@pytest.mark.constants
@pytest.mark.parametrize(
    ("size", "slide", "panes"),
    [
        (3_600, 1, 60),
        (86_400, 60, 36),
        (60, 5, None),
        (61, 1, None),
        (100, 7, None),
        (127, 1, None),
    ],
)
def test_blocks_are_about_the_root_of_a_window_or_not_worth_it(size, slide, panes):
    assert panes_per_block(Window(size * 1_000, slide * 1_000)) == panes
