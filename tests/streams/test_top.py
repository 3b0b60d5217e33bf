"""The best rows: of each key as changes, of each window when it is over."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness, drive
from tests.streams.playing import OPTIONS, Row, play, turns


@dataclass
class Top:
    """Sorts all rows that ever came, after every batch."""

    rows: int
    largest: bool
    seen: dict[Any, list[Row]] = field(default_factory=lambda: defaultdict(list))
    told: dict[Any, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def worth(self, row: Row) -> tuple[Any, ...]:
        value = 0 if row.v is None else -row.v if self.largest else row.v
        return (row.v is None, value, row.order)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        out = []
        for key in {r.k for r in rows}:
            self.seen[key] += [r for r in rows if r.k == key]
            best = sorted(self.seen[key], key=self.worth)[: self.rows]
            for change, left, right in (("-", self.told[key], best), ("+", best, self.told[key])):
                for i, row in enumerate(left):
                    if right[i : i + 1] != [row]:
                        out.append((row.n, i + 1, change))
            self.told[key] = best
        return out


def change(row: dict[str, Any]) -> tuple[int, int, str]:
    return (row["n"], row["rank"], row["change"])


@settings(**OPTIONS)
@given(script=turns(), rows=st.integers(1, 4), largest=st.booleans(), tasks=st.integers(1, 3))
def test_the_best_of_each_key_as_changes(script, rows, largest, tasks):
    play(
        lambda s: s.key_by("k").top(rows, by="v", largest=largest, unbounded=True, name="t"),
        Top(rows, largest), script, change, "t", tasks,
    )  # fmt: skip


def test_one_row_of_each_thing_however_often_it_comes(tmp_path):
    scores = [("x", 1), ("y", 3), ("x", 4), ("z", 2), ("y", 5), ("x", 6), ("w", 1), ("z", 9)]
    rows = [{"g": "one", "who": w, "score": s, "at": i} for i, (w, s) in enumerate(scores)]
    for batch in (1, 3, 100):
        job = hr.Job("board")
        stream = job.read(hr.rows(rows), time="at", delay="1s").key_by("g")
        stream.top(2, by="score", each="who", unbounded=True).write("collect:", name="out")
        told = drive(job, tmp_path / f"{batch}", max_batch=batch).output("out").to_pylist()
        board: set[Any] = set()
        for r in told:
            entry = (r["rank"], r["who"], r["score"])
            (board.add if r["change"] == "+" else board.remove)(entry)
        assert board == {(1, "z", 9), (2, "x", 6)}


SALES = "item string, area string, n bigint, at bigint"


def sold(rows, **window):
    return rows.key_by("area", "item").window(hr.tumbling("10ms"), **window).agg(n=hr.sum("n"))


@settings(max_examples=6, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from("abcdef"), st.sampled_from("xy"), st.integers(0, 4),
                  st.integers(0, 60)), min_size=1, max_size=40),
    best=st.integers(1, 3), batch=st.sampled_from([3, 100]), tasks=st.integers(1, 3),
)  # fmt: skip
def test_the_best_results_of_each_window(rows, best, batch, tasks, tmp_path_factory):
    table = [dict(zip(("item", "area", "n", "at"), r, strict=True)) for r in rows]
    job = hr.Job("windows")
    stream = job.read(hr.rows(table, schema=SALES), time="at", delay="100ms")
    sold(stream).top(best, by="n", per="area").write("collect:", name="out")
    made = drive(job, tmp_path_factory.mktemp("top"), max_batch=batch, tasks=tasks)
    sums: dict[Any, int] = defaultdict(int)
    for r in table:
        sums[r["at"] // 10, r["area"], r["item"]] += r["n"]
    groups = defaultdict(list)
    for (window, area, item), n in sums.items():
        groups[window, area].append((-n, item))
    expected = {(w, a, i, -n, rank) for (w, a), results in groups.items()
                for rank, (n, i) in enumerate(sorted(results)[:best], 1)}  # fmt: skip
    out = made.output("out").to_pylist()
    start = [r["window_start"].timestamp() * 100 for r in out]
    came = {(round(w), r["area"], r["item"], r["n"], r["rank"])
            for w, r in zip(start, out, strict=True)}  # fmt: skip
    assert came == expected
    assert len(out) == len(expected)


def selling(step):
    job = hr.Job("selling")
    step(job.read("log:x", schema=SALES, name="x", time="at", delay="5ms")).write(
        "collect:", name="out"
    )
    return job


def test_a_result_that_is_shown_early_counts_once_and_as_it_is_in_the_end():
    t = hr.triggers
    early = t.at_watermark(early=t.after_rows(1))
    with Harness(selling(lambda s: sold(s, trigger=early).top(1, by="n"))) as test:
        test.send("x", [("pear", "x", 1, 1), ("plum", "x", 2, 2)])
        test.send("x", [("pear", "x", 3, 3)])
        assert test.output() == []
        test.send("x", [("plum", "x", 1, 20)])
        assert [(r["item"], r["n"], r["rank"]) for r in test.output()] == [("pear", 4, 1)]


def test_the_best_can_be_followed_by_another_window():
    def made(s):
        best = sold(s).top(1, by="n")
        return best.window(hr.tumbling("20ms")).agg(n=hr.sum("n"))

    with Harness(selling(made)) as test:
        test.send("x", [("pear", "x", 1, 1), ("plum", "x", 2, 2), ("pear", "x", 5, 12)])
        test.crash()
        test.send("x", [("plum", "x", 1, 40)])
        assert [r["n"] for r in test.output()] == [7]


REFUSED = [
    (lambda s: s.key_by("item").top(2, by="n"), "HR-PLAN-003"),
    (lambda s: s.key_by("item").top(0, by="n", unbounded=True), "HR-STREAM-002"),
    (lambda s: s.key_by("item").top(1, by="m", unbounded=True), "HR-EXPR-001"),
    (lambda s: s.top(1, by="n", each="m"), "HR-EXPR-001"),
    (lambda s: s.rename(rank="n").top(1, by="rank"), "HR-PLAN-015"),
    (lambda s: s.with_columns(l=hr.array("n")).top(1, by="l"), "HR-STREAM-003"),
    (lambda s: sold(s, mode="retract").top(1, by="n"), "HR-STREAM-007"),
]


@pytest.mark.parametrize(("step", "code"), REFUSED)
def test_what_cannot_be_is_refused(step, code):
    with pytest.raises(hr.PlanError) as caught:
        selling(step).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)
