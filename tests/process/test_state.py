"""What a process function keeps and asks for, in small examples."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pytest

import headrace as hr
from tests.process.playing import SCHEMA, said


class Point(NamedTuple):
    x: int
    y: int


@dataclass
class Leg:
    to: Point
    minutes: float = 0.0


@dataclass
class Trip:
    legs: list[Leg] = field(default_factory=list)
    stops: dict[str, Point] = field(default_factory=dict)
    seen: set[int] = field(default_factory=set)


class Travel(hr.KeyedProcess):
    output = "k string, said string"
    trip = hr.value(Trip)
    last = hr.last_of(2, Leg)
    by = hr.map_of(str, Leg)

    def on_row(self, row: Any, ctx: Any) -> Any:
        trip = self.trip or Trip()
        leg = Leg(Point(row.v, -row.v), 1.5)
        trip.legs.append(leg)
        trip.stops[str(row.v)] = leg.to
        trip.seen.add(row.v)
        self.trip, self.by[str(row.v % 2)] = trip, leg
        self.last.append(leg)
        return (ctx.key, f"{trip} {list(self.last)} {sorted(self.by.items())}")


def test_records_inside_records_come_back_as_what_they_were(play: Any) -> None:
    test = play(Travel())
    for v in (1, 2, 3):
        test.send("rows", [("a", v, v)])
    legs = [Leg(Point(v, -v), 1.5) for v in (1, 2, 3)]
    trip = Trip(legs, {str(v): Point(v, -v) for v in (1, 2, 3)}, {1, 2, 3})
    by = [("0", legs[1]), ("1", legs[2])]
    assert said(test)[-1] == ("a", f"{trip} {legs[1:]} {by}")


class Forgetful(hr.KeyedProcess):
    output = "k string, n bigint, seen string"
    n = hr.value(int, default=10)
    seen = hr.list_of(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v < 0:
            del self.n
            del self.seen
            return None
        if row.v == 0:
            del self.n
        else:
            self.n += row.v
            self.seen.append(row.v)
        return (ctx.key, self.n, str(self.seen))


def test_what_is_deleted_starts_anew_and_a_key_without_anything_is_gone(play: Any) -> None:
    test = play(Forgetful())
    test.send("rows", [("a", 1, 1), ("b", 2, 1)])
    test.send("rows", [("a", 0, 2), ("b", -1, 2)])
    assert said(test)[2:] == [("a", 10, "[1]")]
    assert test.state("p")["values"]["k0"].to_pylist() == ["a"]
    test.send("rows", [("b", 5, 3)])
    assert said(test) == [("b", 15, "[5]")]


class Failing(hr.KeyedProcess):
    output = "k string, v bigint"
    outputs: ClassVar[Any] = {"aside": "v bigint"}
    n = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.timer(row.v)
        ctx.counter("rows").add()
        if row.v == 5:
            ctx.emit("nowhere", (1,))

    def on_timer(self, time: int, ctx: Any) -> Any:
        ctx.counter("timers").add()
        self.n += 1
        if time == 2:
            raise ValueError("two is bad")
        ctx.emit("aside", (time,))
        return (ctx.key, self.n)


def test_a_timer_that_fails_is_a_dead_letter_and_leaves_the_key_as_it_was(play: Any) -> None:
    test = play(Failing(), "aside")
    test.send("rows", [("a", v, 0) for v in (1, 2, 3)])
    test.watermark("rows", 10)
    assert said(test) == [("a", 1), ("a", 2)]
    assert said(test, "aside") == [(1,), (3,)]
    (letter,) = test.dead()
    assert letter["step"] == "p" and letter["error"] == "ValueError: two is bad"
    assert letter["record"] == b'{"k": "a", "timer": 2}' and letter["input"] is None
    assert test.progress.metrics == {"p": {"rows": 3, "timers": 2}}


def test_a_side_output_that_is_not_declared_is_a_dead_letter(play: Any) -> None:
    test = play(Failing(), "aside")
    test.send("rows", [("a", 5, 0), ("a", 6, 0)])
    (letter,) = test.dead()
    assert "HR-PROCESS-011 there is no side output 'nowhere'" in letter["error"]
    assert test.progress.metrics == {"p": {"rows": 1}}


class Handed(hr.KeyedProcess):
    """Hands its context on, so that nobody can see what it asks for."""

    output = "k string"

    def __init__(self, how: str) -> None:
        self.how = how

    def on_row(self, row: Any, ctx: Any) -> Any:
        getattr(ctx, self.how)(5)


def test_timers_that_nobody_hears_are_dead_letters(play: Any) -> None:
    test = play(Handed("clock_timer"))
    test.send("rows", [("a", 5, 0)])
    assert "a timer cannot be set here: the class has no on_timer" in test.dead()[0]["error"]


def test_event_timers_on_an_input_without_time_are_dead_letters(play: Any) -> None:
    class Heard(Handed):
        def on_timer(self, time: int, ctx: Any) -> Any: ...

    test = play(Heard("timer"), time=None, delay=None)
    test.send("rows", [("a", 5, 0)])
    assert "its input has no event time" in test.dead()[0]["error"]


class Watching(hr.KeyedProcess):
    output = "k string, said string"

    def on_row(self, row: Any, ctx: Any) -> Any:
        ctx.timer(row.v)
        ctx.clock_timer(row.v)
        return (ctx.key, f"row {ctx.input} {ctx.time} {ctx.watermark}")

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (ctx.key, f"timer {time} {ctx.by_clock} {ctx.watermark} {ctx.clock}")


def test_timers_see_the_watermark_that_fired_them(play: Any) -> None:
    test = play(Watching())
    test.watermark("rows", 1)
    test.send("rows", [("a", 70, 20)])
    test.watermark("rows", 80)
    test.advance(0.2)
    assert [s for _, s in said(test)] == [
        "row rows 20 1", "timer 70 False 80 0", "timer 70 True 80 200",
    ]  # fmt: skip


def test_at_the_end_every_timer_fires_and_none_is_set_anew(play: Any) -> None:
    class Again(Watching):
        def on_timer(self, time: int, ctx: Any) -> Any:
            ctx.timer(time + 1)
            ctx.cancel(99)
            return super().on_timer(time, ctx)

    test = play(Again())
    test.send("rows", [("a", 90, 20), ("a", 99, 20)])
    test.output()
    test.end()
    assert [s.split()[1:3] for _, s in said(test)] == [
        ["90", "False"], ["90", "True"], ["99", "True"],
    ]  # fmt: skip


class Ordered(hr.KeyedProcess):
    output = "seen string"
    seen = hr.list_of(str)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.seen.append(f"{ctx.input}{row.v}")
        return (" ".join(self.seen),)


@pytest.mark.parametrize("tasks", [1, 3])
def test_rows_of_a_batch_come_by_time_then_split_then_offset(harness: Any, tasks: int) -> None:
    job = hr.Job("ordered")
    a, b = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1h", name=n) for n in "ab")
    hr.connect(by="k", a=a, b=b).process(Ordered(), unbounded=True).write("collect:", name="out")
    test = harness(job, tasks=tasks)
    for name, split in (("a", 0), ("a", 1), ("b", 0)):
        test._script.put(test._script.rows(  # all in one batch
            test._script.turn(), name, str(split),
            pa.Table.from_pylist([{"k": "k", "v": split * 10 + i, "at": 5 - i // 2}
                                  for i in range(4)], test.inputs[name])))  # fmt: skip
    test.advance(1)
    # splits are numbered in the order of the program: both of a, then b
    wanted = "a2 a3 a12 a13 b2 b3 a0 a1 a10 a11 b0 b1"
    assert said(test)[-1] == (wanted,)


def test_rows_without_a_time_come_before_those_that_have_one(harness: Any) -> None:
    job = hr.Job("mixed")
    a = job.read("log:a", schema=SCHEMA, time="at", delay="1h", name="a")
    b = job.read("log:b", schema=SCHEMA, name="b")
    made = hr.connect(by="k", a=a, b=b).process(Ordered(), unbounded=True)
    made.where("length(seen) > 0").write("collect:", name="out")
    test = harness(job)
    for name in "ab":
        rows = pa.Table.from_pylist([{"k": "k", "v": 1, "at": 1}], test.inputs[name])
        test._script.put(test._script.rows(test._script.turn(), name, "0", rows))
    test.advance(1)
    assert said(test)[-1] == ("b1 a1",)


def test_a_value_may_be_called_like_what_the_class_knows(play: Any) -> None:
    class Odd(hr.KeyedProcess):
        output = "said string"
        state = hr.value(int, default=1)
        values = hr.value(int, default=2, ttl="1s")
        timed = hr.list_of(int)

        def on_row(self, row: Any, ctx: Any) -> Any:
            given = (f"{self.state} {self.values} {self.timed}",)
            del self.state
            self.timed.append(row.v)
            return given

    test = play(Odd())
    test.send("rows", [("a", 7, 1)])
    test.send("rows", [("a", 8, 2)])
    assert said(test) == [("1 2 []",), ("1 2 [7]",)]


def test_event_and_clock_lives_do_not_disturb_each_other(play: Any) -> None:
    class Both(hr.KeyedProcess):
        output = "said string"
        event = hr.value(int, ttl="10s")
        clock = hr.value(int, ttl="1s", by_clock=True)

        def on_row(self, row: Any, ctx: Any) -> Any:
            before = (f"{self.event} {self.clock}",)
            self.event = self.clock = row.v
            return before

    test = play(Both())  # event time stands still, the clock is far ahead of it
    test.send("rows", [("a", 1, 5)], at=3_600_000)
    test.advance("1h")
    test.send("rows", [("a", 2, 6)])
    assert said(test) == [("None None",), ("1 None",)]
    test.watermark("rows", 60_000)
    test.advance("1h")
    test.send("rows", [("b", 1, 60_000)])  # an epoch in which a is forgotten
    assert test.state("p")["values"]["k0"].to_pylist() == ["b"]


class Fresh(hr.KeyedProcess):
    output = "k string, n bigint"
    n = hr.value(int, default=-1, ttl="5s")

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v == 0:
            raise ValueError("nothing")
        if row.v > 1:
            self.n = row.v
        return (ctx.key, self.n)


def test_after_a_write_out_of_order_the_later_time_counts(play: Any) -> None:
    test = play(Fresh())
    test.send("rows", [("a", 7, 10_000)])
    test.send("rows", [("a", 8, 6_000)])
    test.send("rows", [("a", 1, 14_999)])  # five seconds after 6 s, but not after 10 s
    test.send("rows", [("a", 1, 15_000)])
    assert said(test) == [("a", 7), ("a", 8), ("a", 8), ("a", -1)]


class FreshByClock(Fresh):
    n = hr.value(int, default=-1, ttl="5s", by_clock=True)


def test_by_the_clock_no_row_sees_what_lies_there_until_the_next_batch(play: Any) -> None:
    test = play(FreshByClock())
    test.send("rows", [("a", 7, 1)])
    test.advance("5s")
    assert test.state("p")["values"]["n"].to_pylist() == [7]  # nothing came: no batch
    test.send("rows", [("b", 1, 2)])
    assert test.state("p")["values"].num_rows == 0
    test.send("rows", [("a", 8, 3)])
    test.advance("5s")
    test.send("rows", [("a", 1, 4)])
    assert said(test) == [("a", 7), ("b", -1), ("a", 8), ("a", -1)]


def test_a_row_that_fails_makes_nothing_be_forgotten(play: Any) -> None:
    test = play(Fresh())
    test.send("rows", [("a", 7, 1_000)])
    test.send("rows", [("a", 0, 9_000)])
    test.send("rows", [("a", 1, 2_000)])  # from before: it is there still
    test.send("rows", [("a", 1, 9_000)])
    assert said(test) == [("a", 7), ("a", 7), ("a", -1)]


class Blind(hr.KeyedProcess):
    """Does not look at its context, and gives rows in every way there is."""

    output = "k string, n bigint"
    n = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        give = (row.k, self.n)
        ways = [give, None, [give, give], {"k": row.k, "n": self.n}, (g for g in [give])]
        return ways[row.v]


class Looking(Blind):
    def on_row(self, row: Any, ctx: Any) -> Any:
        assert ctx.key == row.k
        return super().on_row(row, ctx)


@pytest.mark.parametrize("kind", [Blind, Looking])
def test_rows_may_be_given_in_every_way(play: Any, kind: Any) -> None:
    test = play(kind())
    test.send("rows", [(k, v, v) for v in range(5) for k in "ab"])
    assert sorted(said(test)) == [(k, n) for k in "ab" for n in (1, 3, 3, 4, 5)]


@pytest.mark.constants
def test_more_keys_than_are_gone_through_at_a_time(play: Any) -> None:
    test = play(Fails())
    keys, rows = 9_000, 3
    test.send("rows", [(str(k), v, v) for v in range(rows) for k in range(keys)])
    wanted = [(str(k), n) for k in range(keys) for n in (1, 2, 3)]
    assert sorted(said(test)) == sorted(w for w in wanted if w != ("7777", 3))
    assert len(test.dead()) == 1
    assert test.state("p")["values"].num_rows == keys
    test.send("rows", [(str(k), 0, 9) for k in range(keys)])
    assert sorted(said(test)) == sorted((str(k), 3 if k == 7777 else 4) for k in range(keys))


class Fails(hr.KeyedProcess):
    output = "k string, n bigint"
    n = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        if (row.k, row.v) == ("7777", 1):
            raise ValueError("this one")
        self.n += 1
        return (row.k, self.n)


def test_an_object_that_nobody_runs_has_every_start() -> None:
    one = Forgetful()
    assert (one.n, one.seen) == (10, [])
    assert one.on_row(SimpleNamespace(v=3), SimpleNamespace(key="a")) == ("a", 13, "[3]")
    assert Fresh().n == -1


class Looks(hr.KeyedProcess):
    output = "k string"
    n = hr.value(int, default=7)
    seen = hr.list_of(int)
    total = hr.reducing(int, lambda a, b: a + b)

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v == 1:
            self.seen.append(row.v)
        return (row.k,) if row.v in self.seen or self.n > 7 or self.total.value else None


def test_a_key_that_was_only_looked_at_takes_no_room(play: Any) -> None:
    test = play(Looks())
    test.send("rows", [("a", 1, 1), ("b", 2, 2), ("c", 3, 3)])
    assert test.state("p")["values"]["k0"].to_pylist() == ["a"]
