"""Windows on windows: rows that have bounds already, and keys that are called like them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import headrace as hr
from headrace import triggers as t
from headrace.testing import Harness
from tests.testing.jobs import at

SCHEMA = "key string, n bigint, at timestamp"
ROWS = [("a", 1, 1), ("b", 5, 2), ("a", 2, 3), ("a", 7, 12), ("b", 3, 14), ("a", 4, 23)]
Build = Callable[[hr.Stream], hr.Stream]


def sums(rows: hr.Stream, **said: Any) -> hr.Stream:
    return rows.key_by("key").window(hr.tumbling("10s"), **said).agg(total=hr.sum("n"))


def job(build: Build) -> hr.Job:
    made = hr.Job("chained")
    rows = made.read("log:nowhere", schema=SCHEMA, time="at", delay="1s", name="rows")
    build(rows).write("log:also-nowhere", name="out")
    return made


def given(build: Build) -> list[dict[str, Any]]:
    harness = Harness(job(build))
    sent = [{"key": k, "n": n, "at": at(s)} for k, n, s in ROWS]
    harness.send("rows", sent[:4])
    harness.send("rows", sent[4:])
    harness.end()
    return harness.output("out")


def refused(build: Build) -> hr.PlanError:
    with pytest.raises(hr.PlanError) as caught:
        job(build).check()
    return caught.value


def bounds(row: dict[str, Any]) -> tuple[int | None, ...]:
    """The bounds of a result in seconds."""
    ends = (row["window_start"], row["window_end"])
    return tuple(None if e is None else int(e.timestamp()) for e in ends)


def larger(a: Any, b: Any) -> Any:
    assert a.window_end.second % 10 == b.window_end.second % 10 == 0  # those of the rows
    return a if a.total >= b.total else b


def added(a: Any, b: Any) -> dict[str, Any]:
    return {**a._asdict(), "total": a.total + b.total}


class Apart(hr.WindowAssigner):
    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        return [(0, 40_000)]


# What is cut, how, the bounds of the results, and the largest total in each of them.
OUTER: dict[str, tuple[Any, dict[str, Any], list[tuple[Any, ...]]]] = {
    "tumbling": (hr.tumbling("20s"), {}, [(0, 20, 7), (20, 40, 4)]),
    "sliding": (
        hr.sliding("20s", every="10s"), {}, [(-10, 10, 5), (0, 20, 7), (10, 30, 7), (20, 40, 4)],
    ),
    "late": (hr.tumbling("20s"), {"lateness": "1s"}, [(0, 20, 7), (20, 40, 4)]),
    "evicted": (
        hr.tumbling("20s"), {"evict": hr.keep_last(rows=9)}, [(0, 20, 7), (20, 40, 4)],
    ),
    "calendar": (hr.calendar("day"), {}, [(0, 86_400, 7)]),
    "everything": (hr.everything(), {}, [(None, None, 7)]),
    "own": (Apart(), {}, [(0, 40, 7)]),
    "rows": (hr.tumbling(rows=5), {}, [(9, 30, 7)]),
}  # fmt: skip


@pytest.mark.parametrize("case", OUTER)
@pytest.mark.parametrize("inner", [{}, {"info": True}], ids=["plain", "told"])
def test_reduce_over_results_gives_rows_with_the_bounds_of_the_outer_window(
    case: str, inner: dict[str, Any]
) -> None:
    window, said, wanted = OUTER[case]
    found = given(lambda rows: sums(rows, **inner).window(window, **said).reduce(larger))
    assert sorted((*bounds(r), r["total"]) for r in found) == wanted
    assert all(r["key"] in "ab" for r in found)


def test_reduce_twice_over_results_by_key() -> None:
    def twice(rows: hr.Stream) -> hr.Stream:
        once = sums(rows).key_by("key").window(hr.tumbling("20s")).reduce(added)
        return once.key_by("key").window(hr.tumbling("40s")).reduce(added)

    found = given(twice)
    assert sorted((r["key"], *bounds(r), r["total"]) for r in found) == [
        ("a", 0, 40, 14), ("b", 0, 40, 8),
    ]  # fmt: skip


def test_reduce_of_told_results_tells_of_its_own_firings() -> None:
    early = t.at_watermark(early=t.after_rows(1))

    def build(rows: hr.Stream) -> hr.Stream:
        inner = sums(rows, info=True)
        return inner.window(hr.tumbling("20s"), trigger=early).reduce(larger)

    found = [r for r in given(build) if bounds(r) == (0, 20)]
    assert [r["pane"] for r in found] == list(range(len(found))) and len(found) > 1
    assert [r["final"] for r in found] == [False] * (len(found) - 1) + [True]
    assert list(found[0]) == [
        "window_start",
        "window_end",
        "key",
        "total",
        "pane",
        "timing",
        "final",
    ]


def test_fold_and_process_over_results_see_the_bounds_of_the_rows() -> None:
    def ends(a: str, row: Any) -> str:
        return f"{a}{row.key}{row.window_end.second} "

    def process(key: Any, window: Any, rows: list[Any]) -> dict[str, str]:
        return {"value": "".join(f"{r.key}{r.window_end.second} " for r in rows)}

    for window in (hr.tumbling("20s"), hr.session("11s"), hr.tumbling(rows=5)):
        folds = given(
            lambda rows, w=window: sums(rows).window(w).fold("", ends, schema="value string")
        )
        processes = given(
            lambda rows, w=window: sums(rows).window(w).process(process, schema="value string")
        )
        assert [sorted(r["value"].split()) for r in folds] == [
            sorted(r["value"].split()) for r in processes
        ]
        assert sorted(v for r in folds for v in r["value"].split()) == [
            "a10", "a20", "a30", "b10", "b20",
        ]  # fmt: skip


def test_reduce_of_nothing_but_bounds_is_refused() -> None:
    problem = refused(
        lambda rows: sums(rows).select("key", "window_start", "window_end")
        .key_by("key").window(hr.tumbling("20s")).reduce(added)
    )  # fmt: skip
    assert problem.code == "HR-PLAN-021"


def test_a_key_called_like_a_bound_is_refused_with_a_way_out() -> None:
    def build(rows: hr.Stream) -> hr.Stream:
        return sums(rows).key_by("window_end").window(hr.tumbling("10s")).agg(m=hr.max("total"))

    problem = refused(build)
    assert problem.code == "HR-PLAN-015" and "'window_end'" in str(problem)
    assert 'key_by(of_window_end="window_end")' in str(problem)


@pytest.mark.parametrize("name", ["pane", "timing", "final"])
def test_a_key_called_like_what_firings_tell_is_refused_where_they_tell_it(name: str) -> None:
    def build(rows: hr.Stream) -> hr.Stream:
        keyed = rows.rename(**{name: "key"}).key_by(name)
        return keyed.window(hr.tumbling("10s"), info=True).agg(m=hr.max("n"))

    assert refused(build).code == "HR-PLAN-015"


def test_the_way_out_works() -> None:
    def build(rows: hr.Stream) -> hr.Stream:
        keyed = sums(rows).key_by(of_window_end="window_end")
        return keyed.window(hr.tumbling("10s")).agg(m=hr.max("total"))

    found = given(build)
    assert [(r["of_window_end"] == r["window_end"], r["m"]) for r in found] == [
        (True, 5), (True, 7), (True, 4),
    ]  # fmt: skip


PLAIN = {
    "tumbling": hr.tumbling("10s"), "session": hr.session("3s"), "rows": hr.tumbling(rows=1),
    "mixed": hr.sliding(rows=3, every="5s"),
}  # fmt: skip


@pytest.mark.parametrize("name", ["pane", "timing", "final", "change"])
@pytest.mark.parametrize("window", PLAIN)
def test_such_a_key_keeps_its_value_where_firings_tell_nothing(name: str, window: str) -> None:
    def build(rows: hr.Stream) -> hr.Stream:
        return rows.rename(**{name: "key"}).key_by(name).window(PLAIN[window]).agg(m=hr.max("n"))

    assert {r[name] for r in given(build)} == {"a", "b"}


def test_a_key_of_cogroup_called_like_a_bound_is_refused_with_a_way_out() -> None:
    def build(rows: hr.Stream) -> hr.Stream:
        found = sums(rows)
        return found.key_by("window_end").cogroup(
            found.key_by("window_end"), lambda key, a, b: {"n": 1}, window=hr.tumbling("10s"),
            schema="n bigint",
        )  # fmt: skip

    problem = refused(build)
    assert problem.code == "HR-PLAN-015" and "of_window_end" in str(problem)
