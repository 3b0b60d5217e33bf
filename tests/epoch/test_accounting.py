"""Where every record went: read = used + filtered + late + dead, behind every kind of step.

Ten records with v from 0 to 9 go through a step and then through one that drops seven of them. A
step that only passes rows on makes nothing of them: what is dropped behind it is filtered. One that
makes something of them (a sum, a window, state) has used all ten, whatever becomes of its results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness

SCHEMA = "k string, v bigint, at bigint"
ROWS = [(f"k{v}", v, 1_000 + v) for v in range(10)]
TABLE = pa.table({"k": [f"k{v}" for v in range(10)], "name": [f"n{v}" for v in range(10)]})
Made = Callable[[Any], Any]


class Sum(hr.KeyedProcess):
    """Gives each row on."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        yield {"k": row.k, "v": row.v, "at": row.at}


async def asked(row: Any) -> Any:
    return {"k": row.k, "v": row.v, "at": row.at}


def twice_or_never(row: Any) -> Any:
    return [(row.k, row.v, row.at)] * 2 if row.v < 3 else []


def small(row: Any) -> bool:
    return bool(row.v < 3)


def lookup(rows: Any) -> Any:
    return rows.lookup(TABLE, on="k").select("k", "v", "at")


PASSING: dict[str, Made] = {
    "nothing": lambda rows: rows,
    "select": lambda rows: rows.select("k", "v", "at"),
    "map": lambda rows: rows.map(lambda r: (r.k, r.v, int(r.at)), schema=SCHEMA),
    "map_async": lambda rows: rows.map_async(asked, output=SCHEMA),
    "lookup": lookup,
    "deduplicate": lambda rows: rows.deduplicate("k", within="1m"),
    "changes_only": lambda rows: rows.key_by("k").changes_only("v", unbounded=True),
    "throttle": lambda rows: rows.key_by("k").throttle(5, per="1m"),
    "first_seen": lambda rows: rows.first_seen("k", per="1m", expected=50, error=1e-6),
    "lookup, then deduplicate": lambda rows: lookup(rows).deduplicate("k", within="1m"),
    "deduplicate, then lookup": lambda rows: lookup(rows.deduplicate("k", within="1m")),
    "lookup, then where": lambda rows: lookup(rows).where("v < 8"),
}
KEEPING: dict[str, Made] = {
    "process": lambda rows: rows.key_by("k").process(Sum(), output=SCHEMA),
    "window": lambda rows: rows.key_by("k").window(hr.tumbling("1s"))
    .agg(v=hr.sum("v"), at=hr.max("at")).select("k", "v", "at"),
    "running sum": lambda rows: rows.key_by("k").agg(
        v=hr.sum("v"), at=hr.max("at"), unbounded=True),
}  # fmt: skip
DROPPING: dict[str, Made] = {
    "where": lambda rows: rows.where("v < 3"),
    "filter by a function": lambda rows: rows.filter(small),
    "flat_map": lambda rows: rows.flat_map(twice_or_never, schema=SCHEMA),
    "one branch of a split": lambda rows: rows.split(low="v < 3").low,
    "two conditions in a row": lambda rows: rows.where("v < 6")
    .select("k", "v", "at").where("v < 3"),
    "deduplicate": lambda rows: rows.with_columns(g="least(v, 2)").deduplicate("g", within="1m"),
    "where, then a window": lambda rows: rows.where("v < 3").key_by("k")
    .window(hr.tumbling("1s")).agg(n=hr.count()),
}  # fmt: skip


def counted(make: Made, *batches: list[Any]) -> dict[str, int]:
    job = hr.Job("accounted")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1m", name="x")
    make(rows).write("collect:", name="out")
    with Harness(job) as test:
        for rows in batches:
            test.send("x", rows)
        test.end()
        counts = test.progress.counts["x"]
    assert counts["read"] == sum(counts[f] for f in ("used", "filtered", "late", "dead"))
    return {fate: n for fate, n in counts.items() if n and fate != "read"}


@pytest.mark.parametrize("drop", DROPPING)
@pytest.mark.parametrize("step", PASSING)
def test_what_is_dropped_behind_a_step_that_passes_rows_on_is_filtered(
    step: str, drop: str
) -> None:
    fates = counted(lambda rows: DROPPING[drop](PASSING[step](rows)), ROWS[:4], ROWS[4:])
    assert fates == {"used": 3, "filtered": 7}


@pytest.mark.parametrize("drop", DROPPING)
@pytest.mark.parametrize("step", KEEPING)
def test_what_a_step_has_made_something_of_is_used(step: str, drop: str) -> None:
    fates = counted(lambda rows: DROPPING[drop](KEEPING[step](rows)), ROWS[:4], ROWS[4:])
    assert fates == {"used": 10}


def test_a_row_that_is_late_behind_a_lookup_is_late() -> None:
    def make(rows: Any) -> Any:
        return lookup(rows).key_by("k").window(hr.tumbling("1s")).agg(n=hr.count())

    late = [("k1", 1, 1), ("k2", 2, 200_000)]
    assert counted(make, [("k0", 0, 100_000)], late) == {"used": 2, "late": 1}


def test_a_row_that_fails_behind_a_lookup_is_dead_and_none_is_filtered() -> None:
    def inverse(row: Any) -> Any:
        return (1 / row.v,)

    fates = counted(lambda rows: lookup(rows).map(inverse, schema="inverse double"), ROWS)
    assert fates == {"used": 9, "dead": 1}


def test_a_row_that_one_branch_behind_a_lookup_drops_and_another_does_not_is_used() -> None:
    def make(rows: Any) -> Any:
        found = lookup(rows)
        return found.where("v < 3").union(found.where("v > 1 and v < 5"))

    assert counted(make, ROWS) == {"used": 5, "filtered": 5}


def test_the_inputs_of_a_union_are_counted_apart() -> None:
    job = hr.Job("accounted")
    x, y = (job.read(f"log:{n}", schema=SCHEMA, time="at", delay="1m", name=n) for n in "xy")
    lookup(x.where("v < 9").union(y)).where("v < 3").write("collect:", name="out")
    with Harness(job) as test:
        test.send("x", ROWS)
        test.send("y", ROWS[2:5])
        test.end()
        counts = test.progress.counts
    assert (counts["x"]["used"], counts["x"]["filtered"]) == (3, 7)
    assert (counts["y"]["used"], counts["y"]["filtered"]) == (1, 2)


def fates_of(make: Callable[[Any], None], *batches: list[Any], tasks: int = 1) -> dict[str, int]:
    """What became of the records of a job that writes for itself."""
    job = hr.Job("accounted")
    make(job.read("log:x", schema=SCHEMA, time="at", delay="1m", name="x"))
    with Harness(job, tasks=tasks) as test:
        for rows in batches:
            test.send("x", rows)
        test.end()
        counts = test.progress.counts["x"]
    assert counts["read"] == sum(counts[f] for f in ("used", "filtered", "late", "dead"))
    return {fate: n for fate, n in counts.items() if n and fate != "read"}


def to(stream: Any, name: str) -> None:
    stream.write("collect:", name=name)


@pytest.mark.parametrize("step", ["lookup", "deduplicate", "changes_only", "throttle"])
def test_where_a_record_goes_two_ways_it_is_used_if_one_of_them_uses_it(step: str) -> None:
    def make(rows: Any) -> None:
        to(rows.where("v >= 6"), "high")
        to(PASSING[step](rows.where("v < 6")).where("v < 3"), "low")

    assert fates_of(make, ROWS[:4], ROWS[4:], tasks=3) == {"used": 7, "filtered": 3}


def test_a_record_of_which_a_function_makes_several_is_used_if_one_of_them_is() -> None:
    def make(rows: Any) -> None:
        each = rows.flat_map(lambda r: [(r.k, r.v, r.at), (r.k, r.v + 5, r.at)], schema=SCHEMA)
        to(lookup(each).where("v between 5 and 6"), "out")

    assert fates_of(make, ROWS) == {"used": 4, "filtered": 6}  # 5, 6 themselves, and 0, 1


def test_what_a_throttle_drops_is_used_if_the_stream_of_the_dropped_uses_it() -> None:
    def make(rows: Any) -> None:
        few = rows.with_columns(g="v % 2").key_by("g").throttle(1, per="1m")
        to(few, "few")
        to(few.side("dropped").where("v < 6"), "dropped")

    assert fates_of(make, ROWS) == {"used": 6, "filtered": 4}


def some() -> pa.Table:
    return TABLE.slice(0, 5)


def test_a_record_that_waits_in_a_lookup_is_used_by_it() -> None:
    def make(rows: Any) -> None:
        waiting = {"refresh": "1m", "on_missing": "wait", "patience": "1h"}
        known = rows.lookup(some, on="k", schema="k string, name string", **waiting)
        to(known.where("v < 3"), "known")
        to(rows.where("v = 4"), "four")

    job = hr.Job("accounted")
    make(job.read("log:x", schema=SCHEMA, time="at", delay="1m", name="x"))
    with Harness(job) as test:
        test.send("x", ROWS)
        counts = test.progress.counts["x"]
        assert (counts["used"], counts["filtered"]) == (9, 1)  # 3 is known and dropped
        test.end()
        counts = test.progress.counts["x"]
    assert (counts["used"], counts["filtered"], counts["dead"]) == (4, 1, 5)


def test_a_record_that_one_way_uses_and_that_is_late_behind_a_lookup_is_late() -> None:
    def make(rows: Any) -> None:
        to(lookup(rows).key_by("k").window(hr.tumbling("1s")).agg(n=hr.count()), "counts")
        to(rows.where("v >= 0"), "all")

    late = [("k1", 1, 1), ("k2", 2, 200_000)]
    assert fates_of(make, [("k0", 0, 100_000)], late) == {"used": 2, "late": 1}


STEPS = {
    "lookup": (lookup, lambda v: "on"),
    "strict": (lambda rows: rows.lookup(TABLE.slice(0, 7), on="k", on_missing="dead")
               .select("k", "v", "at"), lambda v: "on" if v % 10 < 7 else "dead"),
    "deduplicate": (lambda rows: rows.deduplicate("k", "v", within="1m"), lambda v: "on"),
    "changes_only": (lambda rows: rows.key_by("v").changes_only("k", unbounded=True),
                     lambda v: "on"),
    "window": (lambda rows: rows.key_by("k").window(hr.tumbling("1s"))
               .agg(v=hr.sum("v"), at=hr.max("at")).select("k", "v", "at"), lambda v: "used"),
    "odd": (lambda rows: rows.where("v % 2 = 1"), lambda v: "on" if v % 2 else "gone"),
    "low": (lambda rows: rows.where("v < 25"), lambda v: "on" if v < 25 else "gone"),
    "third": (lambda rows: rows.where("v % 3 = 0"), lambda v: "gone" if v % 3 else "on"),
}  # fmt: skip
STEP = st.sampled_from(sorted(STEPS))
WAYS = st.lists(st.lists(STEP, min_size=1, max_size=4), min_size=2, max_size=3)


def fate(v: int, way: list[str]) -> str:
    """What becomes of the record on this way; what a window makes of it is no record."""
    for step in way:
        met = STEPS[step][1](v)
        if met != "on":
            return met
    return "used"


@settings(max_examples=25)
@given(ways=WAYS, shared=st.lists(STEP, max_size=2), tasks=st.sampled_from([1, 3]))
def test_of_drawn_ways_each_record_counts_by_the_worst_that_it_met(
    ways: list[list[str]], shared: list[str], tasks: int
) -> None:
    def make(rows: Any) -> None:
        for step in shared:
            rows = STEPS[step][0](rows)
        for number, way in enumerate(ways):
            found = rows
            for step in way:
                found = STEPS[step][0](found)
            to(found, f"out{number}")

    sent = [(f"k{v % 10}", v, 1_000 + v) for v in range(40)]
    met = [{fate(v, [*shared, *way]) for way in ways} for v in range(40)]
    expected = Counter(next(f for f in ("dead", "used", "gone") if f in fates) for fates in met)
    expected["filtered"] = expected.pop("gone", 0)
    assert fates_of(make, sent[:15], sent[15:], tasks=tasks) == +expected


class Picky(hr.KeyedProcess):
    """Fails on every third row."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        if row.v % 3 == 0:
            raise ValueError("a third")
        yield {"v": row.v}


def fifths(row: Any) -> Any:
    if row.v % 5 == 0:
        raise ValueError("a fifth")
    return (row.v,)


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_record_with_several_fates_counts_by_the_worst_wherever_it_met_them(tasks: int) -> None:
    """Late in a window, dead in a function of the source task, dead at an operator: all mixes."""
    job = hr.Job("accounted")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1s", name="x")
    rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count()).write("collect:", name="counts")
    rows.key_by("k").process(Picky(), output="v bigint").write("collect:", name="picky")
    rows.where("v >= 30").map(fifths, schema="v bigint").write("collect:", name="fifths")
    early = [(f"k{v % 4}", v, 100_000) for v in range(60)]
    late = [(f"k{v % 4}", v, 1 if v % 2 else 100_000) for v in range(60)]
    with Harness(job, tasks=tasks) as test:
        for batch in (early, late[:7], late[7:]):
            test.send("x", batch)
        test.end()
        counts = test.progress.counts["x"]
    dead = [v % 3 == 0 or (v >= 30 and v % 5 == 0) for v in range(60)]
    odd = sum(v % 2 and not dead[v] for v in range(60))
    assert (counts["dead"], counts["late"]) == (2 * sum(dead), odd)
    assert (counts["read"], counts["used"]) == (120, 120 - 2 * sum(dead) - odd)
    assert counts["filtered"] == 0
