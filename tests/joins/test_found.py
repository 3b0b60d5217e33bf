"""What the models do not look at: ties, columns, state that is dropped, evolution, collisions."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import headrace as hr
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import EpochStep, Place
from headrace.ops.join.interval import IntervalJoin
from headrace.ops.join.pairs import SortedRows, matches
from headrace.state.table import KeyedTable
from headrace.testing import Harness
from tests.joins.driving import ARROW, SCHEMA, Row, plain, send


def job(build: Any, **read: Any) -> hr.Job:
    job = hr.Job("joins")
    options = {"schema": SCHEMA, "time": "at", "delay": "20s", **read}
    a, b = (job.read(f"log:{n}", name=n, **options) for n in "ab")
    build(a, b).named("join").write("console:", name="out")
    return job


def shown(harness: Harness) -> list[tuple[Any, ...]]:
    return sorted(tuple(map(plain, r.values())) for r in harness.output("out"))


def rows(seed: int, count: int, keys: int, first: int) -> list[Row]:
    draw = random.Random(seed)
    return [
        Row(f"k{draw.randrange(keys)}", first + i, draw.randrange(60_000)) for i in range(count)
    ]


def as_table(of: list[Row]) -> pa.Table:
    columns = [[r.key for r in of], [r.value for r in of], [r.time * 1_000 for r in of]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], ARROW)


INTERVAL = "b.at between a.at - interval 2 second and a.at + interval 3 second and a.k = b.k"
SQL = {
    "inner": f"select a.k, a.v, a.at, b.v, b.at from a join b on {INTERVAL}",
    "left": f"select a.k, a.v, a.at, b.v, b.at from a left join b on {INTERVAL}",
    "right": f"select b.k, a.v, a.at, b.v, b.at from a right join b on {INTERVAL}",
    "full": f"select coalesce(a.k, b.k), a.v, a.at, b.v, b.at from a full join b on {INTERVAL}",
    "semi": f"select a.k, a.v, a.at from a semi join b on {INTERVAL}",
    "anti": f"select a.k, a.v, a.at from a anti join b on {INTERVAL}",
}


@pytest.mark.parametrize("how", SQL)
def test_an_interval_join_is_what_duckdb_says(how: str) -> None:
    mine, theirs = rows(1, 400, 20, 0), rows(2, 400, 20, 1_000)
    with duckdb.connect() as database:
        database.register("a", as_table(mine))
        database.register("b", as_table(theirs))
        said = [tuple(map(plain, row)) for row in database.execute(SQL[how]).fetchall()]
    build = job(lambda a, b: a.join(b, on="k", how=how, within=("-2s", "3s")), delay="60s")
    with Harness(build) as harness:
        for part in range(0, 400, 100):
            send(harness, {("a", 0): mine[part : part + 100], ("b", 0): theirs[part : part + 100]})
        harness.end()
        assert sorted(map(repr, shown_all(harness))) == sorted(map(repr, said))


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_join_with_a_table_is_an_asof_join_of_duckdb(how: str) -> None:
    mine = rows(3, 400, 20, 0)
    theirs = list({(r.key, r.time): r for r in rows(4, 400, 20, 1_000)}.values())
    with duckdb.connect() as database:
        database.register("a", as_table(mine))
        database.register("b", as_table(theirs))
        said = database.execute(
            "select coalesce(a.k, b.k), a.v, a.at, b.v, b.at "
            f"from a asof {how} join b on a.k = b.k and a.at >= b.at"
        ).fetchall()
    build = job(lambda a, b: a.join(b.table("k", unbounded=True), how=how), delay="60s")
    with Harness(build) as harness:
        for part in range(0, 400, 100):
            send(harness, {("a", 0): mine[part : part + 100], ("b", 0): theirs[part : part + 100]})
        harness.end()
        wanted = [tuple(map(plain, row)) for row in said]
        assert sorted(map(repr, shown_all(harness))) == sorted(map(repr, wanted))


def shown_all(harness: Harness) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, r.values())) for r in harness.output("out")]


def test_of_two_versions_of_one_moment_the_later_by_offset_counts() -> None:
    build = job(lambda a, b: a.join(b.table("k", unbounded=True)))
    with Harness(build) as harness:
        send(harness, {("b", 0): [Row("x", 1, 5_000), Row("x", 2, 5_000)]})
        send(harness, {("a", 0): [Row("x", 3, 5_000)]})
        harness.end()
        assert shown(harness) == [("x", 3, 5_000, 2, 5_000)]


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_state_is_dropped_as_the_watermark_passes(how: str) -> None:
    build = job(lambda a, b: a.join(b, on="k", how=how, within="2s"), delay="1s")
    with Harness(build) as harness:
        most = 0
        for second in range(0, 60, 2):
            mine = [Row(f"k{i}", i, second * 1_000) for i in range(10)]
            send(harness, {("a", 0): mine, ("b", 0): mine[:5]})
            most = max(most, sum(t.num_rows for t in harness.state("join").values()))
        assert most < 150  # 20 rows every 2 s, kept for some 4 s, in up to four tables


def test_old_versions_are_forgotten_where_age_is_bounded() -> None:
    build = job(lambda a, b: a.join(b.table("k"), within="3s"), delay="1s")
    with Harness(build) as harness:
        for second in range(0, 60, 2):
            send(harness, {("a", 0): [Row("x", 1, second * 1_000)],
                           ("b", 0): [Row(f"k{second}", 1, second * 1_000)]})  # fmt: skip
        assert sum(t.num_rows for t in harness.state("join").values()) < 15


def test_a_changed_interval_and_a_longer_lateness_are_refused_and_a_shorter_one_is_not() -> None:
    def made(within: str, lateness: str) -> hr.Job:
        return job(lambda a, b: a.join(b, on="k", within=within, lateness=lateness))

    with Harness(made("2s", "5s")) as harness:
        send(harness, {("a", 0): [Row("x", 1, 5_000)]})
        harness.restart(made("2s", "3s"))
        with pytest.raises(hr.StateError, match="HR-EVOLVE-001"):
            harness.restart(made("9s", "3s"))
        harness.restart(made("2s", "3s"))
        with pytest.raises(hr.StateError, match=r"HR-EVOLVE-001.*lateness was 3s and is 4s"):
            harness.restart(made("2s", "4s"))  # partners of such rows may be gone


def test_late_rows_of_each_side_are_streams() -> None:
    built = hr.Job("late")
    a, b = (built.read(f"log:{n}", schema=SCHEMA, time="at", delay="1s", name=n) for n in "ab")
    joined = a.join(b.rename(id="k"), on={"k": "id"}, within="2s", name="join")
    joined.write("console:", name="out")
    joined.late.write("console:", name="mine")
    joined.late_of("right").write("console:", name="theirs")
    with Harness(built) as harness:
        send(harness, {("a", 0): [Row("x", 1, 20_000)], ("b", 0): [Row("x", 2, 20_000)]})
        send(harness, {("a", 0): [Row("x", 3, 1_000)], ("b", 0): [Row("x", 4, 2_000)]})
        assert [list(r) for r in harness.output("mine")] == [["k", "v", "at"]]
        assert [(r["id"], r["v"]) for r in harness.output("theirs")] == [("x", 4)]
        counts = harness.progress.counts  # type: ignore[union-attr]
        assert (counts["a"]["late"], counts["b"]["late"]) == (1, 1)


def test_explain_says_what_a_join_does() -> None:
    text = str(job(lambda a, b: a.join(b, on="k", how="left", within=("-1m", "5m"))).explain())
    assert "by k: left within -1m to 5m" in text
    assert "join  vectorised" in text


def test_keys_that_share_a_hash_do_not_meet() -> None:
    schema = pa.schema([("k", pa.int64()), ("v", pa.int64())])
    output = pa.schema([("k", pa.int64()), ("v", pa.int64()), ("v_right", pa.int64())])
    spec = IntervalJoin("full", -10, 10, 0, ((-1, "$k0"), (0, "v"), (1, "v")))

    def arrived(keys: list[int], first: int) -> pa.Table:
        count = len(keys)
        return pa.table({"k": keys, "v": range(first, first + count), "__t": [5] * count,
                         "__h": pa.array([7] * count, pa.uint64())})  # fmt: skip

    runs: dict[str, list[pa.Table]] = {}
    found = []
    turns = [(arrived([1, 2], 0), None), (None, arrived([2, 3], 10)), (None, None)]
    for epoch, inputs in enumerate(turns):
        operator = spec.operator(Place((("k",), ("k",)), (schema, schema), output))
        tables = {s.name: KeyedTable(s, runs.get(s.name, [])) for s in operator.tables()}
        after = MAX_TIME if epoch == 2 else MIN_TIME
        step = EpochStep(inputs, tables, MIN_TIME, after, 0, epoch)
        operator.step(step)
        found += [r for t in step.out for r in t.select(output.names).to_pylist()]
        for name, table in tables.items():
            changes = table.changes()
            runs[name] = [*([] if changes is None else [changes]), *runs.get(name, [])]
    wanted = [(1, 0, None), (2, 1, 10), (3, None, 11)]
    assert sorted(map(repr, (tuple(r.values()) for r in found))) == sorted(map(repr, wanted))


def test_times_far_apart_are_searched_exactly() -> None:
    number = np.array([0, 0, 1, 1, 2])
    at = np.array([MIN_TIME, MAX_TIME, 5, MAX_TIME, -3])
    assert SortedRows(number, at).order.tolist() == [0, 1, 2, 3, 4]
    found = matches(
        np.array([0, 1, 2]), np.array([0, 5, -3]), np.array([MAX_TIME, 5, -3]), number, at
    )
    assert found.pairs()[1].tolist() == [1, 2, 4]
