"""Small operators, loops, and steps without state or without a name."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from river import forest, linear_model, preprocessing, tree

import headrace as hr
from tests.golden.programs.base import orders, program, readings, write

COUNTS = "area string, n bigint"
FEW = "id bigint, area string, zone bigint"


def shares(rows: pa.Table) -> pa.Table:
    return rows.append_column("rows", pa.array([rows.num_rows] * rows.num_rows, pa.int64()))


def halved(rows: pa.Table, loop: Any) -> pa.Table:
    return rows.set_column(2, "zone", pc.divide(rows["zone"], 2))


def tallied(rows: pa.Table, loop: Any) -> pa.Table:
    """How many rows each area has had so far."""
    counts = {r["area"]: r["n"] for r in loop.kept["counts"].to_pylist()}
    for area in rows["area"].to_pylist():
        counts[area] = counts.get(area, 0) + 1
    found = [{"area": area, "n": n} for area, n in counts.items()]
    loop.kept["counts"] = pa.Table.from_pylist(found, schema=loop.kept["counts"].schema)
    loop.emit(loop.kept["counts"])
    return rows.slice(0, 0)


def weaker(rows: pa.Table, loop: Any) -> pa.Table:
    loop.emit(rows)
    on = rows.filter(pc.greater(rows["zone"], 1))
    return on.set_column(2, "zone", pc.subtract(on["zone"], 1))


def grown(stream: Any) -> Any:
    return stream.key_by("area").agg(n=hr.count(), unbounded=True, name="more").drop("n")


async def located(row: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return {"id": row.id, "area": f"{row.area}!", "zone": row.zone}


def asked(rows: list[Any]) -> list[dict[str, Any]]:
    return [{"id": row.id, "area": row.area, "zone": row.zone * TENS()} for row in rows]


def ten() -> int:
    return 10


TENS = hr.resource(ten)


def twice(row: Any) -> list[Any]:
    return [row, row._replace(zone=row.zone + 1)]


def marked(row: Any) -> dict[str, Any]:
    return {"id": row.id, "area": row.area, "zone": 100 // row.zone}


def even(row: Any) -> bool:
    return bool(row.id % 2 == 0)


@program("readings")
def thinned(root: Path, job: hr.Job) -> None:
    """Fewer rows, the best ones, and rows together.

    The folder has a step `board` as well, `top(3, by=, each=)`: see `LEFT_OUT` in `reading.py`.
    """
    rows = readings(root, job).select("id", "area", "zone", "state", "celsius", "at")
    by_area = rows.key_by("area")
    calm = by_area.throttle(2, per="10s", name="calm")
    once = by_area.deduplicate("state", within="8s", name="once")
    write(
        once=once, late=once.late, calm=calm, dropped=calm.side("dropped"),
        ever=rows.deduplicate("area", "zone", unbounded=True, name="ever"),
        changes=by_area.changes_only("state", unbounded=True, name="changes"),
        top=by_area.top(2, by="celsius", unbounded=True, name="top"),
        lists=by_area.batch(3, within="8s", name="lists"),
        clock=by_area.batch(4, within="10s", time="processing", into="them", name="clock"),
        full=by_area.batch(5, unbounded=True, name="full"),
        some=by_area.sample(2, per="10s", seed=3, name="some"), share=rows.sample(0.4, seed=5),
    )  # fmt: skip


@program("readings")
def first_sights(root: Path, job: hr.Job) -> None:
    """Bloom filters: of one layer, and of several, because more keys come than expected."""
    rows = readings(root, job).select("id", "area", "zone", "state", "celsius", "at")
    new = rows.first_seen("area", "zone", per="20s", expected=1_000, error=0.05, name="new")
    grown = rows.first_seen("id", per="1h", expected=1, error=0.0001, name="grown")
    days = rows.first_seen("zone", per=hr.calendar("day"), expected=100, name="days")
    write(new=new, late=new.late, grown=grown, days=days)


@program("readings")
def without_a_key(root: Path, job: hr.Job) -> None:
    """The small operators on a stream without a key: all rows count as one."""
    rows = readings(root, job).select("id", "area", "state", "celsius", "at")
    calm = rows.throttle(3, per="10s", name="calm")
    write(
        calm=calm, dropped=calm.side("dropped"), late=calm.late,
        once=rows.deduplicate("state", within="4s", name="once"),
        whole=rows.select("area", "state").deduplicate(unbounded=True, name="whole"),
        changes=rows.changes_only("state", "area", name="changes"),
        top=rows.top(2, by="celsius", name="top"),
        lists=rows.batch(4, within="8s", name="lists"),
        clock=rows.batch(6, within="10s", time="processing", name="clock"),
        some=rows.sample(3, per="10s", seed=11, name="some"),
    )  # fmt: skip


@program("readings")
def boards(root: Path, job: hr.Job) -> None:
    """The best rows, one of each thing: where values fall and things end, and where they grow."""
    rows = readings(root, job).select("id", "area", "zone", "state", "celsius", "at")
    table = rows.table("area", delete="state = 'off'", unbounded=True)
    counts = rows.key_by("zone", "area").agg(n=hr.count(), unbounded=True, name="counts")
    write(
        board=rows.top(2, by="celsius", largest=False, each="area", name="board"),
        ended=rows.key_by("zone").top(
            1, by="celsius", each="area", delete="state = 'idle'", unbounded=True, name="ended"),
        best=table.top(2, by="celsius", name="best"),
        most=counts.key_by("zone").top(2, by="n", each="area", unbounded=True, name="most"),
    )  # fmt: skip


@program("readings")
def suppressed(root: Path, job: hr.Job) -> None:
    """Of several changes of a key, the last."""
    rows = readings(root, job).select("id", "area", "zone", "state", "celsius", "at")
    by_area = rows.where("area is not null").key_by("area")
    last = by_area.suppress("10s", name="last")
    table = rows.table("area", delete="state = 'off'", unbounded=True)
    write(
        last=last, late=last.late,
        some=by_area.suppress("10s", rows=2, name="some"),
        clock=by_area.suppress("10s", time="processing", name="clock"),
        counted=by_area.suppress(rows=4, unbounded=True, name="counted"),
        calm=table.suppress("10s", name="calm").changes(name="changes"),
    )  # fmt: skip


@program("readings")
def loops(root: Path, job: hr.Job) -> None:
    """Whole batches, and rows that go round: within a batch and into the next."""
    rows = readings(root, job).select("id", "area", "zone")
    by_area = rows.where("area is not null").key_by("area")
    keyed = {"keep": {"counts": COUNTS}, "output": COUNTS, "until": "empty"}
    write(
        shares=rows.transform(shares, output=f"{FEW}, rows bigint", name="shares"),
        same=rows.iterate(halved, until="same", name="same"),
        times=by_area.iterate(halved, times=2, name="times"),
        tallied=by_area.iterate(tallied, **keyed, unbounded=True, name="tallied"),
        model=rows.iterate(tallied, **keyed, name="model"),
        hops=by_area.iterate(weaker, over="batches", output=FEW, name="hops"),
        paused=rows.iterate(weaker, over="batches", pause="5s", output=FEW, name="paused"),
        grown=rows.repeat(grown, 2),
    )


@program("readings", "orders")
def unnamed(root: Path, job: hr.Job) -> None:
    """Steps with names of their place, known by what they read from and by your functions."""
    rows = readings(root, job, name=None)
    few = rows.select("id", "area", "zone")
    other = orders(root, job, name=None).select("area", id="amount", zone="amount % 3")
    both = few.union(other.select("id", "area", "zone"))
    parts = rows.split(cold="celsius < 20", warm="celsius < 30")
    parts.warm.tap(even)
    calls = few.map_async(located, output=FEW).map_async(asked, batch_size=4, output=FEW)
    made = few.map(marked, schema=FEW).flat_map(twice, schema=FEW).filter(even)
    streams = {"both": both, "cold": parts.cold, "other": parts.other, "calls": calls, "made": made}
    for name, stream in streams.items():
        found = stream.key_by("area").agg(n=hr.count(), ids=hr.sum("id"), unbounded=True)
        found.write("collect:", name=f"{name} out")
    tags = rows.explode("tags", as_="tag").key_by("tag").window(hr.tumbling("10s"))
    joined = made.join(other, on="area", within="5s")
    pairs = both.key_by("area").window(hr.session("3s")).agg(n=hr.count())
    write(tags=tags.agg(n=hr.count()), joined=joined, pairs=pairs,
          nothing=rows.explode("tags", outer=True).select("id", "tags"))  # fmt: skip


@program("readings")
def learned(root: Path, job: hr.Job) -> None:
    """Detectors and models: of each key, and of all rows; rows wait for the watermark."""
    rows = readings(root, job).select("id", "area", "zone", "state", "celsius", "at")
    known = rows.where("area is not null").with_columns(warm="celsius > 20")
    by_area, quick = known.key_by("area"), {"grace_period": 3, "delta": 0.5, "tau": 0.9}
    line = preprocessing.StandardScaler() | linear_model.LogisticRegression()
    two: dict[str, Any] = {"features": ["id", "zone"], "unbounded": True}
    write(
        adwin=by_area.drift("celsius", clock=1, grace_period=2, min_window_length=1,
                            delta=0.9, unbounded=True, name="adwin"),
        page=known.drift("celsius", detector="page_hinkley", min_instances=3, threshold=2.0,
                         name="page"),
        kswin=known.drift("celsius", detector="kswin", window_size=8, stat_size=4, alpha=0.3,
                          name="kswin"),
        tree=by_area.learn(tree.HoeffdingTreeClassifier(**quick), target="state", **two,
                           probabilities=True, name="tree"),
        trees=known.learn(forest.ARFClassifier(2, seed=5, **quick), target="warm", **two,
                          name="trees"),
        grown=known.learn(tree.HoeffdingTreeRegressor(**quick), target="celsius", **two,
                          name="grown"),
        line=by_area.learn(line, target="warm", **two, name="line"),
    )  # fmt: skip
