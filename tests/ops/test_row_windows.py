"""Row windows: any epochs, keys and state files, against plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.ops.aggregate_model import AGGS, FLOATS, NUMBERS, TEXTS, check
from tests.ops.row_window_job import (
    BOUNDS,
    INFO,
    INPUT,
    Job,
    Listing,
    StoredJob,
    hash_of,
    table_of,
)
from tests.ops.row_window_model import Following, Row, Shown, is_late, model_of

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Fault
from headrace.ops.row_windows import store as row_store
from headrace.ops.row_windows import stored_windows as row_kept
from headrace.ops.row_windows import work as row_work
from headrace.ops.row_windows.operator import RowWindowOperator
from headrace.ops.window.by_rows import (
    CountWindow,
    DeltaWindow,
    LastRows,
    LastTime,
    RowWindow,
    UntilWindow,
)
from headrace.ops.window.function import AggregateRows

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "25"))  # more for a long search
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
RESULTS = pa.schema([(name, a.result_type(INPUT)) for name, a in AGGS.items()])

FLAGS = st.sampled_from([None, False, True])
KEYS = st.sampled_from([0, 0, 1, 2, None])
ROW = st.tuples(KEYS, NUMBERS, FLOATS, TEXTS, FLAGS, st.integers(0, 12))
History = list[tuple[list[Row], int, int]]  # epochs: rows, and the watermarks around them


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Epochs of rows and watermarks; times go up and down, and the input may end, even twice."""
    epochs, number, before = [], 0, MIN_TIME
    drawn = draw(st.lists(st.tuples(st.lists(ROW, max_size=14), st.integers(0, 9)), max_size=7))
    ends = draw(st.sampled_from([0, 1, 1, 1, 2]))
    for at, (values, step) in enumerate(drawn):
        rows = []
        for k, x, f, s, stop, t in values:
            near = 5 * at + t
            order = {"__t": near, "__s": number % 2, "__o": number * 7 % 101}
            rows.append(dict(k=k, x=x, f=f, s=s, stop=stop, i=number) | order)
            number += 1
        known = max(before, -5) + step
        after = MAX_TIME if at >= len(drawn) - ends else known if draw(st.booleans()) else before
        epochs.append((rows, before, after))
        before = after
    return epochs


def run(
    job: Job, spec: RowWindow, epochs: History, timed: bool
) -> Iterator[tuple[list[Row], list[Fault], list[Shown], Any]]:
    """Epoch by epoch: what the job gave, and what it should have given."""
    model, operator = model_of(spec), job.operator()
    for arrived, before, after in epochs:
        rows = arrived if timed else [r | {"__t": 0} for r in arrived]
        late = operator.late(0, table_of(rows, timed), before)
        by_hand = [before > MIN_TIME and is_late(spec, r, before) for r in rows]
        assert (late is None and not any(by_hand)) or late.tolist() == by_hand
        rows = [r for r, gone in zip(rows, by_hand, strict=True) if not gone]
        table = operator.combine(0, operator.prepare(0, table_of(rows, timed)))
        steps = job.epoch(table if rows else None, before, after)
        given_ = [row for s in steps for out in s.out for row in out.to_pylist()]
        faults = [fault for s in steps for fault in s.faults]
        yield given_, faults, list(model.epoch(rows, before, after)), model


def job_of(
    data: st.DataObject,
    folders: pytest.TempPathFactory,
    spec: RowWindow,
    function: Any,
    output: Any,
) -> Job:
    """In memory, or, one time in four, in files."""

    def operator() -> RowWindowOperator:
        return RowWindowOperator(spec, function, ["k"], INPUT, output)

    if data.draw(st.integers(0, 3)):
        return Job(operator)
    return StoredJob(folders.mktemp("job"), operator)


def moment(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def check_bounds(row: Row, want: Shown, timed: bool) -> None:
    """What is the same whatever is computed."""
    times = [r["__t"] for r in want.rows]
    hashed = np.array([hash_of(want.key)], np.uint64)
    assert (row["__s"], row["__o"]) == (-1, hashed.view(np.int64)[0])
    if timed:
        assert (row["window_start"], row["window_end"]) == (
            moment(min(times)),
            moment(max(times) + 1),
        )
        assert row["__t"] == max(times)
    else:
        assert row["window_start"] is None and row["window_end"] is None and "__t" not in row


SPECS = {
    "tumbling": st.integers(1, 5).map(CountWindow),
    "sliding": st.integers(1, 6).flatmap(
        lambda size: st.integers(1, size).map(lambda every: CountWindow(size, every))
    ),
    "delta": st.builds(
        DeltaWindow, st.sampled_from(["x", "f"]), st.sampled_from([0, 1.5, 3, 10**6]),
        st.sampled_from(["first", "previous"]),
    ),
    "until": st.builds(UntilWindow, st.just("stop"), st.booleans()),
    "last rows": st.builds(LastRows, st.integers(1, 5), st.integers(1, 9)),
    "last time": st.builds(LastTime, st.integers(1, 9), st.integers(1, 5)),
}  # fmt: skip
DEEP = settings(
    max_examples=EXAMPLES, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


@pytest.mark.parametrize("family", SPECS)
@DEEP
@given(st.data())
def test_aggregates_of_row_windows_are_those_of_their_rows(
    family: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spec, timed = data.draw(SPECS[family]), family.startswith("last") or data.draw(st.booleans())
    kind, numbered = data.draw(st.sampled_from(["named", "rows"])), data.draw(st.booleans())
    output = pa.schema([INPUT.field("k"), *BOUNDS, *(INFO if numbered else []), *RESULTS])
    function = AGGS if kind == "named" else AggregateRows(AGGS, RESULTS)
    job = job_of(data, tmp_path_factory, spec, function, output)

    for given_, _, want, model in run(job, spec, data.draw(histories()), timed):
        assert len(given_) == len(want)
        by_number = sorted(want, key=lambda w: (w.key is None, w.key, w.number))
        given_.sort(key=lambda r: (r["k"] is None, r["k"]))  # stable: a key's come in order
        for row, window in zip(given_, by_number, strict=True):
            assert row["k"] == window.key
            check_bounds(row, window, timed)
            check(row, window.rows, AGGS)
            if numbered:
                told = (row["pane"], row["timing"], row["final"])
                assert told == (window.number, "end" if window.at_end else "on time", True)
        if kind == "named" and isinstance(model, Following) and not numbered:
            assert job.held("windows").num_rows == sum(map(bool, model.rows.values()))


@pytest.mark.parametrize("family", SPECS)
@DEEP
@given(st.data())
def test_a_function_sees_the_rows_of_its_windows_in_order(
    family: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    spec, timed = data.draw(SPECS[family]), family.startswith("last") or data.draw(st.booleans())
    output = pa.schema([INPUT.field("k"), *BOUNDS, *INFO, *Listing.schema])
    job = job_of(data, tmp_path_factory, spec, Listing(), output)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_work, "_BAND", data.draw(st.sampled_from([1, 7, 1 << 18])))
        few = data.draw(st.sampled_from([0, 1, 8]))
        patch.setattr(row_kept, "FEW", few + 1)
        patch.setattr(row_store, "FEW", data.draw(st.sampled_from([0, few])))
        for given_, faults, want, model in run(job, spec, data.draw(histories()), timed):
            good = {(w.key, w.number): w for w in want if [r["i"] for r in w.rows] != [13]}
            assert len(faults) == len(want) - len(good)
            assert len(given_) == len(good)
            for row in given_:
                window = good[row["k"], row["pane"]]
                check_bounds(row, window, timed)
                assert row["rows"] == [r["i"] for r in window.rows]
                assert (row["owner"], row["numbers"]) == (row["k"], row["pane"])
                assert row["timings"] == row["timing"] == ("end" if window.at_end else "on time")
                told = (row["begins"], row["ends"])
                assert told == bounds_told(window, timed)
            check_kept(job, spec, model)


def bounds_told(window: Shown, timed: bool) -> tuple[int, int]:
    times = [r["__t"] for r in window.rows]
    return (min(times), max(times) + 1) if timed else (MIN_TIME, MAX_TIME)


def check_kept(job: Job, spec: RowWindow, model: Any) -> None:
    """Only open windows are kept, or what overlapping ones still need."""
    kept: dict[Any, int] = {}
    for row in job.held("rows").to_pylist():
        kept[row["k"]] = kept.get(row["k"], 0) + len(row["[i]"])
    match spec:
        case CountWindow(tumbles=False):
            assert all(n < 3 * spec.size for n in kept.values())
        case LastRows():
            assert all(n <= 2 * spec.rows for n in kept.values())
        case LastTime():
            pass
        case _:
            assert kept == {key: len(rows) for key, rows in model.rows.items() if rows}
