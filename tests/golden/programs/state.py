"""What is stored for each key: running results, process functions, patterns, keys of all types."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace as hr
from tests.golden.feeding import LIMIT, RULE
from tests.golden.programs.base import control, orders, program, readings, write
from tests.golden.programs.windows import Spread, hotter, trail

IDLE = "state = 'idle'"


@dataclass
class Place:
    latitude: float
    names: list[str]


@dataclass
class Reading:
    celsius: float
    at: int
    place: Place | None = None


@dataclass
class Sums:
    n: int
    total: float


class Everything(hr.KeyedProcess):
    """One of each kind of state, event timers, a side output and a figure."""

    output = "area string, id bigint, n bigint, seen int, best double, spread double, told string"
    outputs = {"cold": "area string, celsius double"}  # noqa: RUF012
    n = hr.value(int, default=0)
    record = hr.value(Reading)
    price = hr.value("decimal(12,2)")
    seen = hr.list_of(int)
    states = hr.map_of(str, int)
    recent = hr.last_of(3, Reading)
    best = hr.reducing(float, max)
    spread = hr.aggregating(Spread())
    young = hr.value(int, default=0, ttl="5s")
    fresh = hr.list_of(str, ttl="10s", by_clock=True)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.young += 1
        self.record = Reading(row.celsius, row.at, Place(row.celsius / 2, list(row.tags)))
        self.price = row.price
        self.seen = [*self.seen, row.id][-5:]
        self.states[row.state] = self.states.get(row.state, 0) + 1
        self.recent.append(Reading(row.celsius, row.at))
        self.best.add(row.celsius)
        self.spread.add(row.celsius)
        self.fresh.append(str(row.id))
        ctx.counter("rows").add()
        if row.celsius < 18:
            ctx.emit("cold", (ctx.key, row.celsius))
        if self.n % 4 == 0:
            ctx.timer(ctx.time + 6_000)
        told = f"{self.young} {len(self.fresh)} {self.states} {self.recent[0].at} {self.price}"
        return (ctx.key, row.id, self.n, len(self.seen), self.best.value, self.spread.value, told)

    def on_timer(self, time: int, ctx: Any) -> Any:
        return (ctx.key, -1, self.n, len(self.seen), None, None, f"timer {time}")


class Silence(hr.KeyedProcess):
    """Timers by the clock, set and taken back."""

    output = "area string, n bigint, at bigint"
    n = hr.value(int, default=0)
    due = hr.value(int)

    def on_row(self, row: Any, ctx: Any) -> None:
        self.n += 1
        if self.due is not None and self.n % 2:
            ctx.cancel_clock(self.due)
        self.due = ctx.clock + 10_000
        ctx.clock_timer(self.due)

    def on_timer(self, time: int, ctx: Any) -> Any:
        del self.due
        return (ctx.key, self.n, time)


class Both(hr.KeyedProcess):
    output = "area string, readings bigint, amounts bigint"
    readings = hr.value(int, default=0)
    amounts = hr.value(int, default=0)

    def on_heat(self, row: Any, ctx: Any) -> None:
        self.readings += 1

    def on_paid(self, row: Any, ctx: Any) -> Any:
        self.amounts += row.amount
        return (ctx.key, self.readings, self.amounts)


class Limits(hr.KeyedProcess):
    """A control stream, whose rows every key sees."""

    output = "area string, id bigint, above double"
    limits = hr.shared_map(str, float)
    told = hr.value(int, default=0)

    def on_limits(self, row: Any, ctx: Any) -> None:
        if row.limit is None:
            self.limits.pop(row.area, None)
        else:
            self.limits[row.area] = row.limit

    def on_rows(self, row: Any, ctx: Any) -> Any:
        limit = self.limits.get(row.area, self.limits.get("*"))
        if limit is not None and row.celsius > limit:
            self.told += 1
            return (row.area, row.id, limit + self.told)
        return None


def numbered(row: Any, n: Any) -> Any:
    return (row.area, row.id, (n or 0) + 1), (n or 0) + 1


def alternating(row: Any, n: Any) -> Any:
    return [(row.area, row.id, n)] * (n % 3), n + 1


def counted(rows: list[Any], before: Any) -> Any:
    return Sums((before.n if before else 0) + len(rows), sum(r.celsius for r in rows))


def added(sums: Sums, row: Any) -> Sums:
    return Sums(sums.n + 1, sums.total + row.celsius)


def higher(row: Any, match: Any) -> bool:
    return bool(row.celsius > match.rows[-1][1].celsius)


def labels(match: Any) -> Any:
    return (match.key, " ".join(f"{name}{row.id}" for name, row in match.rows))


@program("readings")
def running(root: Path, job: hr.Job) -> None:
    """Results that go on with every row."""
    by_area = readings(root, job).key_by("area")
    every = {
        "n": hr.count(), "filled": hr.count("state"), "total": hr.sum("celsius"),
        "prices": hr.sum("price"), "mean": hr.mean("celsius"), "low": hr.min("celsius"),
        "high": hr.max("day"), "first": hr.first("id"), "last": hr.last("celsius"),
        "kinds": hr.count_distinct("state"), "coldest": hr.min_by("id", "celsius"),
        "hottest": hr.max_by("id", "celsius"), "dev": hr.stddev("celsius"),
        "var": hr.variance("celsius"), "all": hr.collect("zone"), "spread": Spread("celsius"),
    }  # fmt: skip
    write(
        aggregates=by_area.agg(**every, unbounded=True, name="aggregates"),
        reduced=by_area.reduce(hotter, unbounded=True, name="reduced"),
        folded=by_area.fold("", trail, unbounded=True, name="folded"),
        sums=by_area.fold(Sums(0, 0.0), added, schema=Sums, unbounded=True, name="sums"),
    )


@program("readings")
def keys(root: Path, job: hr.Job) -> None:
    """Keys of every type, of several columns, of an expression, and null."""
    rows = readings(root, job).with_columns(small="cast(zone as int)", ratio="celsius / 2")
    plain = ("area", "zone", "ok", "day", "seen", "price", "raw", "small", "ratio")
    for name in plain:
        found = rows.key_by(name).agg(n=hr.count(), unbounded=True, name=f"by {name}")
        found.select("id", "n").write("collect:", name=f"{name} out")
    several = rows.key_by("area", "zone", "day").agg(n=hr.count(), unbounded=True, name="several")
    made = rows.key_by(level="floor(celsius / 5)").agg(n=hr.count(), unbounded=True, name="made")
    windows = rows.key_by("day", "ok").window(hr.tumbling("20s")).agg(n=hr.count(), name="windows")
    write(several=several.select("id", "n"), made=made.select("id", "n"), windows=windows)


@program("readings", "orders", "limits")
def processes(root: Path, job: hr.Job) -> None:
    """Process functions with every kind of state, timers, and several inputs."""
    rows = readings(root, job)
    by_area = rows.key_by("area")
    everything = by_area.process(Everything(), unbounded=True, name="everything")
    both = hr.connect(by="area", heat=rows, paid=orders(root, job))
    told = hr.connect(by="area", rows=rows, limits=control(root, job, "limits", LIMIT).broadcast())
    given, young = "area string, id bigint, n bigint", hr.value(int, default=0, ttl="30s")
    write(
        everything=everything, cold=everything.side("cold"),
        silence=by_area.process(Silence(), unbounded=True, name="silence"),
        both=both.process(Both(), unbounded=True, name="both"),
        limits=told.process(Limits(), unbounded=True, name="limited"),
        numbered=by_area.map_with_state(numbered, state="bigint", output=given, unbounded=True,
                                        name="numbered"),
        alternating=by_area.flat_map_with_state(alternating, state=young, output=given,
                                                name="alternating"),
        updated=by_area.update_state_by_key(counted, schema=Sums, unbounded=True, name="updated"),
    )  # fmt: skip


class ByTask(hr.KeyedProcess):
    """State per task; what it emits does not depend on which rows come in which batch."""

    output = "n bigint, held bigint, places bigint"
    n = hr.operator_value(int, default=0, merge=max)
    place = hr.operator_value(Place)
    seen = hr.operator_list(int)
    places = hr.operator_list(Place, redistribute="union")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.seen.append(row.id)
        self.place = Place(1.0, ["a"])
        self.places.append(Place(row.celsius, list(row.tags)))
        return (self.n, len(self.seen), len(self.places))


class ByTaskAndKey(ByTask):
    mine = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.mine += 1
        n, held, _ = super().on_row(row, ctx)
        return (n, held, self.mine)


@program("readings")
def by_task(root: Path, job: hr.Job) -> None:
    """Operator state, without a key and beside state by key."""
    rows = readings(root, job)
    every = rows.key_by("area").process(ByTaskAndKey(), unbounded=True, name="both")
    counts = every.select("places")
    write(tasks=rows.process(ByTask(), name="tasks"), counts=counts)


@program("readings", "rules")
def patterns(root: Path, job: hr.Job) -> None:
    """Patterns of every part, partial matches in hand, and rules that come as rows."""
    rows = readings(root, job).select("area", "id", "state", "celsius", "at")
    by_area = rows.key_by("area")
    on, off, idle = (hr.pattern(s, f"state = '{s}'") for s in ("on", "off", "idle"))
    group = hr.pattern("x", "celsius > 20").next("y", "celsius <= 20")
    wanted = {
        "then": on.then("b", "state = 'off'", higher).within("20s"),
        "next": on.next("b", "state = 'off'").within("20s"),
        "any": off.then_any("b", "celsius > 25").within("8s"),
        "times": hr.pattern("a", "celsius > 18").times(2, 3, within="6s").within("20s"),
        "greedy": off.one_or_more(greedy=True).then("b", "state = 'idle'").within("30s"),
        "until": hr.pattern("a", "celsius > 16").one_or_more().until("state = 'idle'").within("5s"),
        "optional": on.then("b", "celsius > 30").optional().then("c", IDLE).within("20s"),
        "without": on.without("n", "celsius > 35").then("c", "state = 'idle'").within("20s"),
        "not next": idle.not_next("n", "state = 'idle'").then("c", "state = 'on'").within("20s"),
        "absent": idle.then_not("n", "celsius > 30", within="5s"),
        "either": on.then(hr.either(off, idle)).within("10s"),
        "group": group.times(2).within("20s").skip_past_last(),
        "first": off.times_or_more(2).then("c", IDLE).within("20s").skip_to_first("off"),
        "skip": off.one_or_more().next("c", "state = 'idle'").within("20s").skip_to_next(),
    }  # fmt: skip
    several = by_area.match(
        wanted, select=labels, output="area string, rows string", name="several"
    )
    alarm = wanted["then"]
    found = by_area.match(
        alarm, select={"rise": "b.celsius - `on`.celsius"}, timeouts=True, name="found"
    )
    rules = control(root, job, "rules", RULE, time="at", delay="1s")
    ruled = by_area.match(rules=rules.broadcast(), select={"n": "size(rows)"}, name="ruled")
    write(several=several, found=found, timeouts=found.timeouts, late=found.late, ruled=ruled,
          plain=rows.match(wanted["group"], name="plain"))  # fmt: skip


class InOrder(hr.KeyedProcess):
    """Silences, which only a function in the order of event time finds in any batches."""

    output = "area string, id bigint, n int, seen array<bigint>, silent bigint"
    n = hr.value(int, default=0)
    seen = hr.list_of(int)
    last = hr.value(int, ttl="20s")

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.seen.append(row.id)
        if self.last is not None:
            ctx.cancel(self.last + 3_000)
        self.last = ctx.time
        ctx.timer(ctx.time + 3_000)
        return (ctx.key, row.id, self.n, self.seen, None)

    def on_timer(self, time: int, ctx: Any) -> Any:
        seen, self.seen = self.seen, []
        return (ctx.key, None, self.n, seen, time)


class Meeting(hr.KeyedProcess):
    output = "area string, input string, n int"
    n = hr.value(int, default=0)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        return (ctx.key, ctx.input, self.n)


@program("readings", "orders")
def in_order(root: Path, job: hr.Job) -> None:
    """Process functions that hold rows until the watermark has passed them."""
    rows = readings(root, job)
    both = hr.connect(by="area", heat=rows, paid=orders(root, job))
    told = rows.key_by("area").process(InOrder(), order="event_time", unbounded=True, name="told")
    met = both.process(Meeting(), order="event_time", unbounded=True, name="met")
    tasks = rows.process(ByTask(), order="event_time", name="tasks").select("places")
    late = told.late.select("id")
    write(told=told, late=late, met=met, tasks=tasks)
