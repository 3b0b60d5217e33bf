"""`top(each=)`: one row of each thing, when its values rise and fall, and when it ends."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.ops.stream import candidate_levels
from headrace.testing import Driver, Harness, drive
from tests.streams.playing import OPTIONS, Row, play, turns


@dataclass
class Board:
    """Sorts the last row of each thing, after every batch."""

    rows: int
    largest: bool
    deletes: bool
    keyed: bool
    things: int
    last: dict[Any, dict[Any, Row]] = field(default_factory=lambda: defaultdict(dict))
    shown: dict[Any, list[Row]] = field(default_factory=lambda: defaultdict(list))

    def worth(self, row: Row) -> tuple[Any, ...]:
        value = 0 if row.v is None else -row.v if self.largest else row.v
        return (row.v is None, value, row.order)

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        touched = set()
        for row in sorted(rows, key=lambda r: r.order):
            key = row.k if self.keyed else 0
            touched.add(key)
            if self.deletes and row.v == 0:
                self.last[key].pop(row.n % self.things, None)
            else:
                self.last[key][row.n % self.things] = row
        out = []
        for key in touched:
            best = sorted(self.last[key].values(), key=self.worth)[: self.rows]
            shown, self.shown[key] = self.shown[key], best
            for change, left, right in (("-", shown, best), ("+", best, shown)):
                out += [(row.n, rank, change) for rank, row in enumerate(left, 1)
                        if right[rank - 1 : rank] != [row]]  # fmt: skip
        return out


def change(row: dict[str, Any]) -> tuple[int, int, str]:
    return (row["n"], row["rank"], row["change"])


@settings(**{**OPTIONS, "max_examples": 2 * OPTIONS["max_examples"]})
@given(
    script=turns(), rows=st.integers(1, 4), largest=st.booleans(), deletes=st.booleans(),
    keyed=st.booleans(), things=st.sampled_from([1, 5, 20]), tasks=st.integers(1, 3),
)  # fmt: skip
def test_the_best_things_of_each_key_as_changes(
    script, rows, largest, deletes, keyed, things, tasks
):
    def made(s):
        s = s.with_columns(thing=f"n % {things}")
        ends = {"delete": "v = 0"} if deletes else {}
        return (s.key_by("k") if keyed else s).top(
            rows, by="v", largest=largest, each="thing", unbounded=True, name="t", **ends
        )

    model = Board(rows, largest, deletes, keyed, things)
    play(made, model, script, change, "t", tasks)


FALLING = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 9), st.booleans()), min_size=1, max_size=120
)


def applied(changes: list[dict[str, Any]]) -> dict[int, tuple[Any, ...]]:
    """The list after these changes; each "-" is a row that is there."""
    board: dict[int, tuple[Any, ...]] = {}
    for row in changes:
        if row["change"] == "-":
            assert board.pop(row["rank"]) == (row["e"], row["v"])
        else:
            assert row["rank"] not in board
            board[row["rank"]] = (row["e"], row["v"])
    return board


@settings(max_examples=8, deadline=None)
@given(
    rows=FALLING, batch=st.sampled_from([1, 7, 200]), most=st.integers(1, 5),
    way=st.sampled_from(["stream", "table", "processing"]),
)  # fmt: skip
def test_however_rows_are_cut_the_list_ends_the_same(rows, batch, most, way, tmp_path_factory):
    table = [{"e": e, "v": v, "gone": g, "at": i} for i, (e, v, g) in enumerate(rows)]
    job = hr.Job("boards")
    read = job.read(hr.rows(table, "e bigint, v bigint, gone boolean, at bigint"), time="at",
                    delay="10ms", name="in")  # fmt: skip
    if way == "stream":
        best = read.top(most, by="v", each="e", delete="gone", name="best")
    else:
        time = "event" if way == "table" else "processing"
        versions = read.table("e", delete="gone", unbounded=True)
        best = versions.top(most, by="v", time=time, name="best")
    best.write("collect:", name="out")
    out = drive(job, tmp_path_factory.mktemp("boards"), max_batch=batch).output("out")
    last: dict[int, Any] = {}
    for at, (e, v, gone) in enumerate(rows):
        last.pop(e, None)
        if not gone:
            last[e] = (-v, at, e)
    expected = {rank: (e, -v) for rank, (v, _, e) in enumerate(sorted(last.values())[:most], 1)}
    assert applied(out.to_pylist()) == expected
    assert out.column_names == ["e", "v", "gone", "at", "rank", "change"]


def test_a_table_that_refers_to_groups_has_a_list_of_each():
    def made():
        job = hr.Job("groups")
        read = job.read("log:x", schema="id string, area string, v bigint, at bigint", name="x",
                        time="at", delay="1ms")  # fmt: skip
        table = read.table("id", unbounded=True)
        table.top(1, by="v", per="area", name="best").write("collect:", name="out")
        return job

    def told(test):
        return sorted((r["area"], r["id"], r["v"], r["change"]) for r in test.output())

    with Harness(made()) as test:
        test.send("x", [("a", "north", 3, 1), ("b", "north", 5, 1), ("c", "south", 1, 1)])
        test.send("x", [("tick", "east", 0, 10)])
        assert told(test) == [("north", "b", 5, "+"), ("south", "c", 1, "+")]
        test.crash()
        test.send("x", [("b", "south", 5, 11), ("tick", "east", 0, 20)])  # it moves
        assert told(test) == [
            ("east", "tick", 0, "+"), ("north", "a", 3, "+"), ("north", "b", 5, "-"),
            ("south", "b", 5, "+"), ("south", "c", 1, "-"),
        ]  # fmt: skip
        test.restart(made())
        test.send("x", [("b", "south", 0, 21), ("tick", "east", 0, 30)])
        assert [t for t in told(test) if t[0] == "south"] == [
            ("south", "b", 5, "-"), ("south", "c", 1, "+"),
        ]  # fmt: skip


def listed(job: hr.Job, folder: Any, **driven: Any) -> list[tuple[Any, ...]]:
    driver = Driver(job, folder, **driven)
    driver.drain()
    rows = driver.output("out").to_pylist()
    return [(r["change"], r["who"], r["at"]) for r in rows]


@pytest.mark.parametrize("by", ["max(v)", "count(*) filter (where v > 3)", "count(v)", "sum(v)"])
def test_a_row_that_stays_equal_but_comes_later_is_behind_its_equals(by: str, tmp_path):
    rows = [("a", 9, 1), ("b", 9, 2), ("a", None if by == "count(v)" else 0, 10)]
    expected = [("+", "a", 1), ("-", "a", 1), ("+", "b", 2)]
    for batch in (1, 100):
        job = hr.Job("equals")
        made = [{"who": w, "v": v, "at": at} for w, v, at in rows]
        read = job.read(hr.rows(made, "who string, v int, at bigint"), time="at", delay="1s")
        best = read.key_by("who").agg(f"{by} as m", unbounded=True).top(1, by="m", each="who")
        best.write("collect:", name="out")
        found = listed(job, tmp_path / f"{batch}", max_batch=batch)
        assert found == (expected if batch == 1 else expected[-1:])


def test_an_aggregate_that_begins_anew_brings_others_up():
    def made(name: str) -> hr.Job:
        job = hr.Job("anew")
        read = job.read("log:x", schema="who string", name="x")
        counts = read.key_by("who").agg(n=hr.count(), unbounded=True, name=name)
        counts.top(1, by="n", each="who", name="best").write("collect:", name="out")
        return job

    with Harness(made("c")) as test:
        test.send("x", [(who,) for who in "aaabb"])
        test.output()
        test.restart(made("c2"), drop=["c"])
        test.send("x", [("a",)])
        found = [(r["change"], r["who"], r["n"]) for r in test.output()]
    assert found == [("-", "a", 3), ("+", "b", 2)]


def test_changes_of_a_list_are_no_table_but_those_of_a_tables_list_are(tmp_path):
    job = hr.Job("ranks")
    rows = [{"who": "a", "v": 5, "at": 5}, {"who": "a", "v": 7, "at": 3}]
    read = job.read(hr.rows(rows), time="at", delay="5s", name="r")
    read.top(1, by="v", each="who").where("change = '+'").table("rank")
    with pytest.raises(hr.PlanError, match="HR-JOIN-028"):
        job.check()
    job = hr.Job("ranks")
    read = job.read(hr.rows(rows), time="at", delay="5s", name="r")
    best = read.table("who", unbounded=True).top(1, by="v")
    ranks = best.where("change = '+'").drop("change").table("rank", unbounded=True)
    ranks.changes().write("collect:", name="out")
    assert listed(job, tmp_path, max_batch=1)[-1] == ("+", "a", 5)


def test_a_batch_costs_what_it_changes_not_what_is_held(monkeypatch):
    monkeypatch.setattr(candidate_levels, "_FIRST", 8)
    monkeypatch.setattr(candidate_levels, "_GROWTH", 4)
    read, real = [], candidate_levels.LevelsOfGroups._read

    def counting(self: Any, groups: Any, levels: Any) -> Any:
        found = real(self, groups, levels)
        read.append(found[0].num_rows)
        return found

    monkeypatch.setattr(candidate_levels.LevelsOfGroups, "_read", counting)
    job, count, batches = hr.Job("many"), 20_000, 150
    stream = job.read("log:x", schema="e bigint, v bigint", name="x")
    stream.top(2, by="v", each="e", name="t").write("collect:", name="out")
    with Harness(job, tasks=1) as test:
        test.send("x", pa.table({"e": np.arange(count), "v": np.arange(count)}))
        assert [(r["e"], r["rank"]) for r in test.output()] == [(count - 1, 1), (count - 2, 2)]
        read.clear()
        for i in range(batches):  # the best falls to the end, and the third comes up
            test.send("x", [(count - 1 - i, -i)])
            assert [r["e"] for r in test.output() if r["change"] == "+"] == [
                count - 2 - i, count - 3 - i,
            ]  # fmt: skip
    assert sum(read) < 60 * batches


REFUSED = [
    (lambda s: s.top(1, by="n", delete="n = 0"), "HR-STREAM-015"),
    (lambda s: s.top(1, by="n", each="l"), "HR-STREAM-003"),
    (lambda s: s.top(1, by="n", each="item", delete="m = 0"), "HR-EXPR-001"),
    (lambda s: s.table("item").top(1, by="n", name="t"), "HR-PLAN-003"),
    (lambda s: s.table("item", unbounded=True).top(1, by="m"), "HR-EXPR-001"),
    (lambda s: s.table("item", unbounded=True).top(1, by="n", per="m"), "HR-EXPR-001"),
    (lambda s: s.rename(change="item").table("n", unbounded=True).top(1, by="n"), "HR-JOIN-006"),
]


@pytest.mark.parametrize(("step", "code"), REFUSED)
def test_what_cannot_be_is_refused(step, code):
    job = hr.Job("selling")
    read = job.read("log:x", schema="item string, n bigint, l array<int>, at bigint", name="x",
                    time="at", delay="5ms")  # fmt: skip
    step(read).write("collect:", name="out")
    with pytest.raises(hr.PlanError) as caught:
        job.check()
    assert {p.code for p in caught.value.problems} == {code}
    assert all(p.hint and p.site for p in caught.value.problems)
