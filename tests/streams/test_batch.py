"""Rows packed into lists: against a model, by event time and by the clock."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import MAX_TIME
from headrace.testing import Harness, drive
from tests.streams.playing import OPTIONS, Row, play, turns


@dataclass
class Lists:
    """Cuts what waits of every key from the start, after every batch."""

    rows: int
    within: int | None
    by_clock: bool
    waiting: dict[Any, list[tuple[Any, Row]]] = field(default_factory=lambda: defaultdict(list))

    def step(self, rows: list[Row], before: int, after: int, clock: int) -> list[Any]:
        for row in rows:
            when = clock if self.by_clock else row.t
            self.waiting[row.k].append((when, row))
        now = clock if self.by_clock and after < MAX_TIME else after
        return [told for key in self.waiting for told in self.cut(key, now, after >= MAX_TIME)]

    def cut(self, key: Any, now: int, end: bool) -> list[Any]:
        left = sorted(self.waiting[key], key=lambda pair: (pair[0], pair[1].order))
        out, self.waiting[key] = [], []
        while left:
            first = left[0][0]
            inside = [p for p in left if self.within is None or p[0] < first + self.within]
            mine, left = inside[: self.rows], left[len(inside[: self.rows]) :]
            over = end or (self.within is not None and first + self.within <= now)
            if over or len(mine) == self.rows:
                out.append((key, [row.n for _, row in mine]))
            else:
                self.waiting[key] += mine
        return out


def packed(row: dict[str, Any]) -> Any:
    return (row["k"], [inner["n"] for inner in row["rows"]])


@settings(**OPTIONS)
@given(
    script=turns(), rows=st.integers(1, 5), within=st.sampled_from([None, 3, 10, 50]),
    by_clock=st.booleans(),
)  # fmt: skip
def test_lists_are_as_the_model_cuts_them(script, rows, within, by_clock):
    length = None if within is None else f"{within}ms"
    time = "processing" if by_clock else "event"
    play(
        lambda s: s.key_by("k").batch(rows, within=length, time=time, unbounded=True, name="b"),
        Lists(rows, within, by_clock), script, packed, "b",
    )  # fmt: skip


def reading(step, **more):
    job = hr.Job("packing")
    options = {"schema": "k string, v bigint, at bigint", "time": "at", "delay": "5ms", **more}
    step(job.read("log:x", name="x", **options)).write("collect:", name="out")
    return job


def test_without_a_time_of_its_own_a_stream_goes_by_the_clock():
    made = reading(lambda s: s.batch(3, "5s"), time=None, delay=None)
    with Harness(made) as test:
        test.send("x", [("a", 1, 0), ("b", 2, 0)])
        test.advance("4s")
        assert test.output() == []
        test.advance("1s")
        (found,) = test.output()
        assert [r["v"] for r in found["rows"]] == [1, 2]
        assert sorted(found["rows"][0]) == ["at", "k", "v"]


def test_a_list_that_waited_is_not_late_for_a_window():
    made = reading(
        lambda s: (
            s.key_by("k").batch(2, within="10ms").window(hr.tumbling("20ms")).agg(n=hr.count())
        )
    )
    with Harness(made) as test:
        test.send("x", [("a", 1, 3), ("b", 2, 4)])
        test.send("x", [("c", 3, 19)])
        test.send("x", [("c", 4, 50)])
        test.end()
        assert sum(r["n"] for r in test.output()) == 4
        assert test.late() == []


def test_nothing_is_kept_of_what_left(tmp_path):
    with Harness(reading(lambda s: s.key_by("k").batch(2, within="1s", name="pack"))) as test:
        test.send("x", [("a", i, i) for i in range(7)])
        assert len(test.output()) == 3
        assert test.state("pack")["waiting"].num_rows == 1
        test.send("x", [("b", 1, 5_000)])
        test.end()
        assert [len(r["rows"]) for r in test.output()] == [1, 1]
        assert test.state("pack")["waiting"].num_rows == 0


@pytest.mark.constants
def test_many_keys_and_rows_at_once(tmp_path):
    rows = [{"k": f"k{i % 700}", "v": i, "at": i} for i in range(20_000)]
    job = hr.Job("many")
    stream = job.read(hr.rows(rows), time="at", delay="1s").key_by("k")
    stream.batch(7, within="1h").write("collect:", name="out")
    made = drive(job, tmp_path, max_batch=3_000).output("out")
    assert sum(len(r) for r in made["rows"].to_pylist()) == 20_000
    assert {len(r) for r in made["rows"].to_pylist()} == {7, 28 % 7 or 7, 29 % 7}


REFUSED = [
    (lambda s: s.key_by("k").batch(2), "HR-PLAN-003"),
    (lambda s: s.key_by("k").batch(0, within="1s"), "HR-STREAM-002"),
    (lambda s: s.key_by("k").batch("1s", 2), "HR-STREAM-002"),
    (lambda s: s.key_by("k").batch(2, "soon"), "HR-TIME-001"),
    (lambda s: s.key_by("k").batch(2, within="1s", time="ingestion"), "HR-STREAM-006"),
    (lambda s: s.key_by("k").batch(2, within="1s", into="k"), "HR-PLAN-015"),
]


@pytest.mark.parametrize(("step", "code"), REFUSED)
def test_what_cannot_be_is_refused(step, code):
    with pytest.raises(hr.PlanError) as caught:
        reading(step).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)
