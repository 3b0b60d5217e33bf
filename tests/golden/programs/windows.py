"""Windows: every kind, every trigger, every mode, and all that can be computed over them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

import headrace as hr
from headrace import triggers as t
from tests.golden.programs.base import program, readings, write


class Spread(hr.Aggregate):
    state = "struct<low double, high double>"
    output = float
    unit = "celsius"

    def zero(self) -> Any:
        return {"low": float("inf"), "high": float("-inf")}

    def add(self, state: Any, value: Any) -> Any:
        return {"low": min(state["low"], value), "high": max(state["high"], value)}

    def merge(self, a: Any, b: Any) -> Any:
        return {"low": min(a["low"], b["low"]), "high": max(a["high"], b["high"])}

    def result(self, state: Any) -> float:
        return float(state["high"] - state["low"])


class Total(hr.Aggregate):
    """Takes in whole Arrow arrays."""

    state = float
    output = float

    def zero(self) -> float:
        return 0.0

    def add_chunk(self, state: float, values: pa.Array) -> float:
        return state + float(pc.sum(values).as_py() or 0.0)

    def merge(self, a: float, b: float) -> float:
        return a + b

    def result(self, state: float) -> float:
        return state


class Heat(hr.WindowAssigner):
    """A reading warms for a while; what overlaps is one window."""

    limit = 20

    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        return [(time, time + 200 * max(int(row.celsius) - self.limit, 1))]

    def merge(self, first: Any, second: Any) -> tuple[int, int] | None:
        return (first.start, max(first.end, second.end)) if second.start < first.end else None


class Within(hr.WindowAssigner):
    """Windows of another kind, and those around them; its settings are an object of ours."""

    def __init__(self, inner: Any, more: int) -> None:
        self.inner, self.more = inner, more

    def assign(self, time: int, row: Any) -> list[tuple[int, int]]:
        start = time - time % self.more
        return [(start, start + self.more), (start - self.more, start + self.more)]


class Trend(hr.WindowProcess):
    last = hr.value(float)
    names = hr.value("array<string>")
    shown = hr.window_value(int, default=0)

    def process(self, key: Any, window: Any, rows: Any, ctx: Any) -> Any:
        mean = sum(rows["celsius"]) / len(rows)
        change, self.last = (None if self.last is None else mean - self.last), mean
        self.names = [*(self.names or []), str(len(rows))][-3:]
        self.shown += 1
        ctx.counter("rows").add(len(rows))
        return {"mean": mean, "change": change, "shown": self.shown, "names": self.names}


def hotter(a: Any, b: Any) -> Any:
    return a if a.celsius >= b.celsius else b


def trail(text: str, row: Any) -> str:
    return f"{text}{row.id} "


def steps(key: Any, window: Any, rows: Any) -> Any:
    for before, after in pairwise(rows):
        yield {"id": after.id, "rise": after.celsius - before.celsius}


def warm(rows: list[Any]) -> list[bool]:
    return [row.celsius > 20 for row in rows]


def doubled(window: Any) -> bool:
    return bool(window.new >= window.rows - window.new)


@program("readings")
def aggregates(root: Path, job: hr.Job) -> None:
    """Every aggregate, over windows from shared panes."""
    by_area = readings(root, job).key_by("area")
    every = {
        "n": hr.count(), "filled": hr.count("area"), "total": hr.sum("celsius"),
        "ids": hr.sum("id"), "prices": hr.sum("price"), "mean": hr.mean("celsius"),
        "low": hr.min("celsius"), "high": hr.max("celsius + 1"), "days": hr.max("day"),
        "first": hr.first("id"), "last": hr.last("state"), "all": hr.collect("id"),
        "kinds": hr.count_distinct("state"), "coldest": hr.min_by("id", "celsius"),
        "hottest": hr.max_by("tags", "celsius"), "dev": hr.stddev("celsius"),
        "var": hr.variance("id"), "spread": Spread("celsius"), "sum": Total("celsius"),
    }  # fmt: skip
    tumbling = by_area.window(hr.tumbling("10s")).agg(**every, name="tumbling")
    moved = hr.tumbling("10s", offset="3s")
    sliding = by_area.window(hr.sliding("20s", every="5s")).agg(**every, name="sliding")
    whole = by_area.unkeyed.window(hr.tumbling("30s"))
    write(tumbling=tumbling, late=tumbling.late, sliding=sliding,
          moved=by_area.window(moved).agg(n=hr.count(), spread=Spread("celsius"), name="moved"),
          whole=whole.agg(n=hr.count(), name="whole"))  # fmt: skip


@program("readings")
def timed(root: Path, job: hr.Job) -> None:
    """Windows of time of every other kind."""
    by_area = readings(root, job).key_by("area")
    few = {"n": hr.count(), "ids": hr.collect("id"), "total": hr.sum("celsius")}
    kinds: dict[str, Any] = {
        "cumulating": hr.cumulating("30s", every="10s"),
        "cumulating moved": hr.cumulating("30s", every="10s", offset="4s"),
        "session": hr.session("4s"), "own gap": hr.session(hr.col("zone") * 1000 + 500),
        "traced gap": hr.session(lambda row: row.zone * 500 + 250),
        "day": hr.calendar("day", zone="Europe/Berlin"), "week": hr.calendar("week"),
        "quarter": hr.calendar("month", each=3), "everything": hr.everything(),
        "heat": Heat(), "within": Within(hr.tumbling("8s"), 8_000),
    }  # fmt: skip
    for name, window in kinds.items():
        found = by_area.window(window).agg(**few, name=name)
        found.write("collect:", name=f"{name} out")
    told = by_area.window(hr.tumbling("10s"), info=True).agg(**few, name="told")
    write(told=told, late=told.late)


@program("readings")
def fired(root: Path, job: hr.Job) -> None:
    """Every trigger and every mode; windows that wait for late rows."""
    by_area = readings(root, job).key_by("area")
    few = {"n": hr.count(), "total": hr.sum("celsius"), "last": hr.last("id")}
    early: dict[str, Any] = {
        "rows": t.after_rows(3), "change": t.on_change(), "clock": t.every("10s"),
        "event": t.every("4s", time="event"), "delay": t.after_delay("10s"),
        "row": t.on_row("state = 'idle'"), "delta": t.on_delta("celsius", 5),
        "any": t.any_of(t.after_rows(4), t.on_row("ok")),
        "all": t.all_of(t.after_rows(2), t.on_row("ok")), "first": t.first(t.on_change()),
        "twice": t.repeat(t.after_rows(2), times=2), "own": t.custom(doubled),
    }  # fmt: skip
    for name, trigger in early.items():
        window = by_area.window(hr.tumbling("40s"), trigger=t.at_watermark(early=trigger))
        window.agg(**few, name=name).write("collect:", name=f"{name} out")
    late = t.at_watermark(early=t.after_rows(3), late=t.after_rows(2))
    for mode in ("replace", "delta", "retract"):
        window = by_area.window(hr.session("4s"), trigger=late, lateness="2m", mode=mode)
        window.agg(**few, name=f"{mode} late").write("collect:", name=f"{mode} late out")
        whole = by_area.window(hr.everything(), trigger=t.after_rows(5), mode=mode)
        whole.agg(**few, name=f"{mode} ever").write("collect:", name=f"{mode} ever out")
    bare = by_area.window(hr.sliding("20s", "10s"), trigger=t.after_rows(2), may_lose=True)
    waits = by_area.window(hr.tumbling("10s"), lateness="2m")
    write(bare=bare.agg(**few, name="bare"), waits=waits.agg(**few, name="waits"))


@program("readings")
def counted(root: Path, job: hr.Job) -> None:
    """Windows that rows bound, and those that mix rows and time."""
    by_area = readings(root, job).key_by("area")
    kinds: dict[str, Any] = {
        "rows": hr.tumbling(rows=4), "last rows": hr.sliding(rows=5, every_rows=2),
        "ticks": hr.sliding(rows=3, every="10s"), "lately": hr.sliding("10s", every_rows=3),
        "delta": hr.delta("celsius", 5), "step": hr.delta("celsius", 9, since="previous"),
        "until": hr.until("state = 'idle'"), "before": hr.until("ok", inside=False),
    }  # fmt: skip
    for name, window in kinds.items():
        cut = by_area.window(window)
        found = cut.agg(n=hr.count(), ids=hr.collect("id"), mean=hr.mean("celsius"), name=name)
        found.write("collect:", name=f"{name} out")
    four = by_area.window(hr.tumbling(rows=4))
    write(folded=four.fold("", trail, name="folded"),
          processed=four.process(steps, schema="id bigint, rise double", name="processed"),
          reduced=four.reduce(hotter, name="reduced"))  # fmt: skip


@program("readings")
def counted_early(root: Path, job: hr.Job) -> None:
    """Windows that rows bound, with triggers, modes, evictors and stored values."""
    by_area = readings(root, job).key_by("area")
    kinds: dict[str, Any] = {
        "rows": hr.tumbling(rows=4), "last rows": hr.sliding(rows=5, every_rows=3),
        "lately": hr.sliding("10s", every_rows=3), "step": hr.delta("celsius", 9),
        "until": hr.until("state = 'idle'"),
    }  # fmt: skip
    early = t.at_watermark(early=t.any_of(t.after_rows(2), t.first(t.on_row("celsius > 30"))))
    for name, window in kinds.items():
        cut = by_area.window(window, trigger=early, mode="retract")
        found = cut.agg(n=hr.count(), ids=hr.collect("id"), mean=hr.mean("celsius"), name=name)
        found.write("collect:", name=f"{name} out")
    five = hr.tumbling(rows=5)
    timed = t.at_watermark(early=t.any_of(t.every("4s", time="event"), t.after_delay("2s")))
    each = t.per_row(t.at_watermark(early=t.after_rows(2)))
    trend = "mean double, change double, shown bigint, names array<string>"
    write(timed=by_area.window(five, trigger=timed, mode="delta").agg(n=hr.count(), name="timed"),
          each=by_area.window(five, trigger=each, evict=hr.keep_last(rows=3)).fold(
              "", trail, name="each"),
          trend=by_area.window(five, trigger=early).process(
              Trend(), schema=trend, unbounded=True, name="trend"))  # fmt: skip


@program("readings")
def evicted(root: Path, job: hr.Job) -> None:
    """Evictors, which need the rows themselves."""
    by_area = readings(root, job).key_by("area")
    early = t.at_watermark(early=t.after_rows(3))
    kinds = {
        "newest": hr.keep_last(rows=2), "recent": hr.keep_last("5s"),
        "near": hr.keep_near("celsius", 6), "warm": hr.keep(warm),
        "spared": hr.keep_last(rows=1, after=True),
    }  # fmt: skip
    for name, evictor in kinds.items():
        window = by_area.window(hr.tumbling("20s"), trigger=early, evict=evictor)
        window.agg(ids=hr.collect("id"), n=hr.count(), name=name).write(
            "collect:", name=f"{name} out"
        )
    rows = by_area.window(hr.session("4s"), evict=hr.keep_last(rows=3))
    write(processed=rows.process(steps, schema="id bigint, rise double", name="processed"))


@program("readings")
def window_functions(root: Path, job: hr.Job) -> None:
    """Functions over windows: folded where they fire once, with rows where they do not."""
    by_area = readings(root, job).key_by("area")
    tumbling, session = by_area.window(hr.tumbling("10s")), by_area.window(hr.session("4s"))
    sliding = by_area.window(hr.sliding("20s", every="10s"))
    trend = "mean double, change double, shown bigint, names array<string>"
    early = by_area.window(hr.tumbling("20s"), trigger=t.at_watermark(early=t.after_rows(2)))
    clock = by_area.window(hr.tumbling("30s"), time="processing")
    write(
        reduced=tumbling.reduce(hotter, name="reduced"),
        folded=sliding.fold("", trail, name="folded"),
        sessions=session.fold("", trail, name="sessions"),
        hottest=session.reduce(hotter, name="hottest"),
        steps=tumbling.process(steps, schema="id bigint, rise double", name="steps"),
        trend=early.process(Trend(), schema=trend, unbounded=True, name="trend"),
        clock=clock.agg(n=hr.count(), name="clock"),
    )


@program("readings")
def chained(root: Path, job: hr.Job) -> None:
    """Windows on windows, and the best of each; what is between them has no state."""
    rows = readings(root, job)
    means = (
        rows.key_by("area").window(hr.tumbling("10s")).agg(mean=hr.mean("celsius"), name="means")
    )
    best = means.window(hr.tumbling("20s")).agg(area=hr.max_by("area", "mean"), name="best")
    counts = rows.key_by("zone", "state").window(hr.sliding("20s", every="10s")).agg(n=hr.count())
    early = rows.key_by("zone").window(
        hr.tumbling("20s"), trigger=t.at_watermark(early=t.on_change())
    )
    write(best=best, late=best.late, top=counts.top(2, by="n", name="top"),
          per=counts.top(1, by="n", largest=False, per="zone", name="per"),
          again=early.agg(n=hr.count(), name="early").top(2, by="n", name="again"))  # fmt: skip
