"""Joins and cogroup in sessions that the rows of both sides make, against a plain model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness
from tests.joins.driving import NEVER, OPTIONS, SCHEMA, Driven, Row, examples, in_windows, turns

HOWS = ("inner", "left", "right", "full", "semi", "anti", "cogroup")
Sided = tuple[str, Row]


@dataclass
class Model:
    how: str
    gap: int  # ms, or 0: it differs from row to row
    lateness: int
    held: list[Sided] = field(default_factory=list)

    def end(self, row: Row) -> int:
        """Until when a row at the very end of the gap could come."""
        return row.time + (self.gap or (row.value or 0) % 5 * 1_000 + 1) + 1

    def late_row(self, row: Row, floor: int) -> bool:
        return floor > NEVER and self.end(row) <= floor

    def step(self, new: dict[str, list[Row]], before: int, after: int) -> list[Any]:
        self.held += [(side, row) for side, rows in new.items() for row in rows]
        found: list[Any] = []
        for rows in list(self.sessions()):
            start, end = min(r.time for _, r in rows), max(self.end(r) for _, r in rows)
            if end <= after - self.lateness:
                self.held = [one for one in self.held if one not in rows]
                time = end - 1 + self.lateness
                found += [(time, given) for given in self.result(rows, start, end - 1)]
        return found

    def sessions(self) -> Iterator[list[Sided]]:
        """Rows of a key in order of time, cut where nothing came for the gap."""
        groups: dict[Any, list[Sided]] = {}
        for one in self.held:
            alone = one[1].key is None and self.how != "cogroup"
            groups.setdefault(one if alone else one[1].key, []).append(one)
        for rows in groups.values():
            now: list[Sided] = []
            for one in sorted(rows, key=lambda one: one[1].time):
                if now and one[1].time >= max(self.end(r) for _, r in now):
                    yield now
                    now = []
                now.append(one)
            yield now

    def result(self, rows: list[Sided], start: int, end: int) -> list[tuple[Any, ...]]:
        a, b = ([row for side, row in rows if side == port] for port in "ab")
        if self.how == "cogroup":
            return [(rows[0][1].key, start, end, *(sum(r.value for r in s) for s in (a, b)))]
        if self.how in ("semi", "anti"):
            return [(*x, start, end) for x in a if bool(b) == (self.how == "semi")]
        found: list[tuple[Any, ...]] = [(*x, *y[1:]) for x in a for y in b]
        if self.how in ("left", "full") and not b:
            found += [(*x, None, None) for x in a]
        if self.how in ("right", "full") and not a:
            found += [(y.key, None, None, *y[1:]) for y in b]
        return [(*row, start, end) for row in found]


@pytest.mark.parametrize("how", HOWS)
@settings(max_examples=examples(3), **OPTIONS)
@given(data=st.data())
def test_every_kind_gives_what_the_model_says(how: str, data: Any) -> None:
    model = Model(
        how, data.draw(st.sampled_from([1_000, 3_000, 0])), data.draw(st.sampled_from([0, 3_000]))
    )
    window = hr.session(f"{model.gap}ms" if model.gap else lambda r: r.v % 5 * 1_000 + 1)
    wait = f"{model.lateness}ms"

    Driven(in_windows(how, window, wait), model, data.draw(turns()), lateness=model.lateness).run()


def job(window: Any, how: str = "full") -> hr.Job:
    job = hr.Job("sessions")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1h", name=n) for n in "ab")
    a.join(b, on="k", how=how, window=window, name="join").write("console:", name="out")
    return job


def at(second: float) -> datetime:
    return datetime.fromtimestamp(second, UTC)


def test_nothing_is_kept_of_sessions_that_are_over() -> None:
    with Harness(job(hr.session("5s"))) as test:
        test.send("a", [("x", 1, at(0)), (None, 2, at(1))])
        test.send("b", [("x", 3, at(4)), (None, 4, at(2)), ("y", 5, at(50))])
        assert test.state("join")["rows"].num_rows == 5
        test.watermark("a", "20s")
        test.watermark("b", "20s")
        assert len(test.output()) == 3
        kept = {name: table.num_rows for name, table in test.state("join").items()}
        assert kept == {"windows": 1, "open": 1, "marks": 0, "rows": 1}


def test_a_row_whose_gap_fails_is_a_dead_letter_and_the_others_go_on() -> None:
    gap = hr.session(lambda r: r.k.cast("bigint"))
    with Harness(job(gap, "inner")) as test:
        test.send("a", [("2000", 1, at(0)), ("soon", 2, at(0))])
        test.send("b", [("2000", 3, at(1)), ("soon", 4, at(1))])
        test.end()
        assert [(r["v"], r["v_right"]) for r in test.output()] == [(1, 3)]
        letters = test.dead()
        assert [r["step"] for r in letters] == ["join", "join"]
        assert all("soon" in r["error"] for r in letters)


def test_a_row_whose_gap_makes_no_session_is_a_dead_letter() -> None:
    with Harness(job(hr.session(lambda r: r.v), "inner")) as test:
        test.send("a", [("x", 2_000, at(0)), ("x", 0, at(0)), ("x", None, at(0))])
        test.send("b", [("x", 1, at(1)), ("x", 2**62, at(1))])
        test.end()
        assert [(r["v"], r["v_right"]) for r in test.output()] == [(2_000, 1)]
        told = ["is 0 ms", "is null", f"is {2**62} ms, more than 1000 years"]
        assert [r["error"] for r in test.dead()] == [
            f"ValueError: the gap of a session {fact}" for fact in told
        ]


def test_the_kind_may_change_while_sessions_are_open_but_not_the_gap() -> None:
    with Harness(job(hr.session("5s"), "inner")) as test:
        test.send("a", [("x", 1, at(0))])
        with pytest.raises(hr.StateError):
            test.restart(job(hr.session("6s"), "inner"))
        test.restart(job(hr.session("5s"), "left"))
        test.end()
        assert [(r["v"], r["v_right"]) for r in test.output()] == [(1, None)]


def test_explain_says_what_a_session_is() -> None:
    assert "by k: semi in session gap 5s" in str(job(hr.session("5s"), "semi").explain())
    assert "in session gap `v` * 2" in str(job(hr.session(lambda r: r.v * 2)).explain())
