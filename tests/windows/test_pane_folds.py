"""`fold` and `reduce` whose functions merge: sliding windows from shared panes, with and without
`inverse`, against plain Python; and how often each function is called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import gcd
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.windows.cases import ASSIGNERS, assigner
from tests.windows.driving import drive, streams
from tests.windows.model import Model, Row
from tests.windows.model.results import FUNCTIONS
from tests.windows.test_against_model import KEYS, OPTIONS, SEQUENCES

# The model: the panes of a window by time, the rows of each as they came.


def by_pane(rows: list[Row], now: Any, bounds: Any) -> list[Any]:
    size, slide, offset = SIZES[0]
    pane = gcd(size, slide)

    def place(row: Row) -> Any:
        return (row.time - offset) // pane, now.window.rows[row].epoch, row.place

    return [([row.value for row in sorted(rows, key=place)],)]


def totals(rows: list[Row], now: Any, bounds: Any) -> list[Any]:
    values = Counter(row.value or 0 for row in rows)
    return [(sum(row.value or 0 for row in rows), len(rows), sorted(values.items()))]


FUNCTIONS["by_pane"], FUNCTIONS["totals"] = by_pane, totals
SIZES = [(0, 0, 0)]  # of the windows that are driven

# The same for a job. All functions change their first argument, and pass on their second.


def _append(seen: list[Any], row: Any) -> list[Any]:
    seen.append(row.v)
    return seen


def _extend(seen: list[Any], later: list[Any]) -> list[Any]:
    if not seen:
        return later
    seen.extend(later)
    return seen


def _zero() -> dict[str, Any]:
    return {"total": 0, "n": 0, "values": {}}


def _row(state: dict[str, Any], row: Any) -> dict[str, Any]:
    return _add(state, {"total": row.v or 0, "n": 1, "values": {row.v or 0: 1}})


def _add(state: dict[str, Any], other: dict[str, Any], sign: int = 1) -> dict[str, Any]:
    state["total"] += sign * other["total"]
    state["n"] += sign * other["n"]
    values = Counter(state["values"])
    for value, n in dict(other["values"]).items():
        values[value] += sign * n
    state["values"] = dict(sorted((v, n) for v, n in values.items() if n))
    return state


def _subtract(state: dict[str, Any], pane: dict[str, Any]) -> dict[str, Any]:
    return _add(state, pane, -1)


_TOTALS = "total bigint, n bigint, values map<bigint, bigint>"
SHARED: dict[str, Callable[[Any], Any]] = {
    "by_pane": lambda w: w.fold(list, _append, merge=_extend, schema="seen array<bigint>"),
    "totals": lambda w: w.fold(
        _zero(), _row, merge=_add, inverse=_subtract, schema=_TOTALS, name="slid"
    ),
}


class Labelled:
    """Results with what windows that fire once need not say of themselves."""

    def __init__(self, windows: Any) -> None:
        self.late = windows.late
        self._rows = windows.with_columns(
            pane=hr.lit(0), timing=hr.lit("on time"), final=hr.lit(True)
        )

    def write(self, *args: Any, **kwargs: Any) -> None:
        self._rows.write(*args, **kwargs)


def _made(rows: Any, case: Model) -> Any:
    keyed = rows.key_by("k") if case.may_lose is False else rows
    return Labelled(SHARED[case.function](keyed.window(assigner(case.assigner))))


WINDOWS = [
    ("sliding", 6_000, 2_000, 0),
    ("sliding", 5_000, 3_000, 500),
    ("sliding", 9_000, 1_000, 0),
    ("sliding", 3_000, 2_000, 0),
    ("tumbling", 4_000, 500),
]
FIRST = ASSIGNERS["sliding"][:2]


@pytest.mark.parametrize("function", SHARED)
@settings(max_examples=max(-(-SEQUENCES // KEYS), 4), **OPTIONS)
@given(data=st.data())
def test_windows_are_what_plain_python_makes_of_their_rows(function: str, data: Any) -> None:
    slides = [w for w in WINDOWS if w[0] == "sliding" or function == "by_pane"]
    window = data.draw(st.sampled_from(slides))
    SIZES[0] = (window[1], *window[-2:]) if window[0] == "sliding" else (window[1], *window[1:])
    drive(Model(window, function=function), data.draw(streams(*FIRST, KEYS)), _made)


@pytest.mark.parametrize("function", SHARED)
@settings(max_examples=2, **OPTIONS)
@given(data=st.data())
def test_neither_tasks_nor_restarts_are_seen(function: str, data: Any) -> None:
    window = data.draw(st.sampled_from(WINDOWS[:4]))
    SIZES[0] = window[1:]
    stream = data.draw(streams(*FIRST, KEYS))
    for tasks in (1, 3):
        drive(Model(window, function=function), stream.started(tasks, again=True), _made)


@settings(max_examples=3, **OPTIONS)
@given(data=st.data())
def test_without_a_key(data: Any) -> None:
    window = data.draw(st.sampled_from(WINDOWS[:4]))
    stream = data.draw(streams(*FIRST, 5)).without_keys()
    case = replace(Model(window, function="totals"), may_lose=True)
    drive(case, stream, _made)


# how often functions are called

SCHEMA = "k string, v bigint, at bigint"
CALLS: Counter[str] = Counter()


def _counted(name: str, sign: int = 1) -> Callable[[Any, Any], Any]:
    def function(a: Any, b: Any) -> Any:
        CALLS[name] += 1
        return a._replace(v=a.v + sign * b.v)

    return function


def _reduced(seconds: list[list[int]], **functions: Any) -> list[tuple[int, int]]:
    CALLS.clear()
    job = hr.Job("calls")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1ms", name="x").key_by("k")
    windows = rows.window(hr.sliding("10s", every="1s"))
    windows.reduce(_counted("fn"), name="sums", **functions).write("collect:", name="out")
    with Harness(job) as harness:
        for batch in seconds:
            harness.send("x", [{"k": "a", "v": s + 1, "at": 1_000 * s} for s in batch])
        return [(int(r["window_end"].timestamp()), r["v"]) for r in harness.output("out")]


MERGE = {"merge": _counted("merge")}
SLIDE = {**MERGE, "inverse": _counted("inverse", -1)}
LIVE = [[second] * 3 for second in range(30)]


def _wanted(last: int) -> list[tuple[int, int]]:
    sums = (sum(s + 1 for s in range(max(0, e - 10), e)) for e in range(1, last))
    return [(end, 3 * total) for end, total in zip(range(1, last), sums, strict=True)]


@pytest.mark.parametrize("functions", [{}, MERGE, SLIDE], ids=["fn", "merge", "inverse"])
def test_the_results_are_the_same_however_they_are_made(functions: Any) -> None:
    assert _reduced(LIVE, **functions) == _wanted(29)
    assert _reduced([[s for batch in LIVE for s in batch]], **functions) == _wanted(29)


def test_a_row_is_folded_once_and_windows_of_a_batch_share_merges() -> None:
    _reduced([[s for batch in LIVE for s in batch]], **MERGE)
    assert CALLS["fn"] == 2 * 30  # of three rows a second, the first begins the pane
    assert 30 < CALLS["merge"] <= 3 * 30


def test_a_window_that_slides_adds_what_comes_and_subtracts_what_goes() -> None:
    _reduced(LIVE, **SLIDE)
    assert CALLS["fn"] == 2 * 30
    assert CALLS["merge"] == 27  # 28 panes have entered, one began
    assert CALLS["inverse"] == 18  # the last window begins at 18


def test_nothing_is_subtracted_without_an_inverse() -> None:
    _reduced(LIVE, **MERGE)
    assert CALLS["inverse"] == 0


def test_a_row_behind_the_watermark_counts_in_all_windows_that_are_still_to_fire() -> None:
    batches = [[s] for s in range(24)]
    batches[17].append(10)
    batches[20].append(19)
    found = {how: _reduced(batches, **how_to) for how, how_to in
             {"fn": {}, "merge": MERGE, "inverse": SLIDE}.items()}  # fmt: skip
    assert found["inverse"] == found["merge"] == found["fn"]
    assert CALLS["inverse"] > 0


def test_a_value_ends_with_its_rows_and_the_next_begins_anew() -> None:
    seen: list[tuple[int, int]] = []

    def subtract(a: Any, b: Any) -> Any:
        seen.append((a.v, b.v))
        return a._replace(v=-1_000_000)  # wrong on purpose

    found = _reduced([[0], [1], [8], [40], [41], [80]], merge=_counted("m"), inverse=subtract)
    assert seen  # so it was asked, and what it says is used
    assert dict(found)[41] == 41  # but not after a pause


# what is refused


@pytest.mark.parametrize(
    ("code", "window", "options", "functions"),
    [
        ("HR-WINDOW-052", hr.session("5s"), {}, MERGE),
        ("HR-WINDOW-052", hr.tumbling(rows=3), {}, MERGE),
        ("HR-WINDOW-052", hr.sliding("6s", every="2s"), {"lateness": "5s"}, MERGE),
        ("HR-WINDOW-053", hr.sliding("6s", every="2s"), {}, {"inverse": _subtract}),
        ("HR-WINDOW-054", hr.tumbling("6s"), {}, SLIDE),
        ("HR-PLAN-028", hr.sliding("6s", every="2s"), {}, {"merge": lambda a: a}),
    ],
)
def test_refused(code: str, window: Any, options: Any, functions: Any) -> None:
    job = hr.Job("refused")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1ms", name="x").key_by("k")
    rows.window(window, **options).reduce(_counted("fn"), **functions).write("collect:")
    with pytest.raises(hr.PlanError, match=code):
        job.check()


def test_a_merge_that_fails_stops_the_job_and_names_the_step() -> None:
    def broken(a: Any, b: Any) -> Any:
        raise ValueError("no merge")

    with pytest.raises(hr.HeadraceError, match="step 'sums' failed: ValueError: no merge"):
        _reduced(LIVE[:5], merge=broken)
