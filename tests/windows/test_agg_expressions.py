"""Aggregates written as SQL text and as arithmetic: what they compute, store and refuse.

The oracle is DuckDB's own GROUP BY and OVER on the same rows, and the program is closed and
started again in the middle.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import headrace as hr
from headrace.errors import PlanError
from headrace.testing import Driver, drive

SCHEMA = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.int64()), ("x", pa.float64())])
# Our text, and DuckDB's where it differs; each is also what a program with arithmetic computes.
TEXTS = {
    "sum(v) / count(*)": "sum(v)::double / count(*)",
    "max(v) - min(v)": "",
    "floor(avg(x)) + 1": "",
    "(sum(v) + sum(v * 2)) / count(v)": "(sum(v) + sum(v * 2))::double / count(v)",
    "coalesce(sum(v) filter (where v > 50), 0) + count(*) filter (where v > 50)": "",
    "case when count(*) > 3 then max(x) else -1.0 end": "",
    "count(distinct v) * 10 + count(v)": "",
    "max_by(x, v) - min_by(x, v) filter (where v > 20)": "",
    "max(v) = min(v)": "",
    "size(collect_list(v)) + count(*)": "count(v) + count(*)",
    "sum(v)": "",
}
NAMED = {f"c{i}": text for i, text in enumerate(TEXTS)}


def drawn(seed: int, count: int = 400) -> pa.Table:
    draw = random.Random(seed)
    values = draw.sample(range(1_000), count)  # all different: max_by has one answer
    rows = [
        {"k": draw.choice("abc"), "t": i * 100, "v": v, "x": draw.randrange(1_000) / 8}
        for i, v in enumerate(values)
    ]
    for row in draw.sample(rows, 40):
        row["v"] = None
    return pa.Table.from_pylist(rows, SCHEMA)


def of_duckdb(rows: pa.Table, around: str) -> list[dict[str, Any]]:
    columns = ", ".join(
        f"{theirs or ours} as {n}" for n, (ours, theirs) in zip(NAMED, TEXTS.items(), strict=True)
    )
    duckdb.register("drawn", rows)
    return duckdb.sql(around.format(columns)).to_arrow_table().to_pylist()


def played(build: Any, rows: pa.Table, folder: Path) -> list[dict[str, Any]]:
    """The results of a program that is closed and started again after some epochs."""

    def job() -> hr.Job:
        made = hr.Job("aggregates")
        stream = made.read(hr.rows(rows), time="t", delay="1s", name="rows")
        build(stream).write("collect:", name="out")
        return made

    first = Driver(job(), folder, max_batch=70)
    for _ in range(3):
        first.epoch()
    first.close()
    return list(drive(job(), folder, max_batch=70).output("out").to_pylist())


def in_order(rows: list[dict[str, Any]], *columns: str) -> list[dict[str, Any]]:
    plain = [{n: r[n] for n in (*columns, *NAMED)} for r in rows]
    return sorted(plain, key=lambda r: [str(r[c]) for c in columns])


def test_windows_compute_what_duckdb_does(tmp_path: Path) -> None:
    rows = drawn(1)
    found = played(lambda s: s.key_by("k").window(hr.tumbling("5s")).agg(**NAMED), rows, tmp_path)
    for row in found:
        row["start"] = int(row["window_start"].timestamp())
    expected = of_duckdb(rows, "select k, t // 5000 * 5 as start, {} from drawn group by all")
    assert in_order(found, "k", "start") == in_order(expected, "k", "start")


def test_running_aggregates_compute_what_duckdb_does(tmp_path: Path) -> None:
    rows = drawn(2, 120)
    texts = [f"{text} as {name}" for name, text in NAMED.items()]
    found = played(lambda s: s.key_by("k").agg(*texts, unbounded=True), rows, tmp_path)
    so_far = "drawn a join drawn b on a.k = b.k and b.t <= a.t"
    expected = of_duckdb(
        rows, f"select k, t, {{}} from (select a.k, a.t, b.v, b.x from {so_far}) group by all"
    )
    assert in_order(found, "k", "t") == in_order(expected, "k", "t")


def test_arithmetic_and_text_are_the_same_step() -> None:
    texts = explained("sum(v) / count(*) as m", "round(avg(x), 2) as r", "sum(v) as total")
    calls = explained(
        (hr.sum("v") / hr.count()).alias("m"),
        r=hr.round(hr.avg("x"), 2),
        total=hr.sum("v"),
    )
    assert texts == calls
    assert "$sum(v) = sum(v), $count() = count(), $mean(x) = mean(x)" in texts


def explained(*texts: Any, **named: Any) -> str:
    job = hr.Job("j")
    stream = job.read(hr.rows([{"k": "a", "t": 1, "v": 1, "x": 0.5}]), time="t", delay="1s")
    stream.key_by("k").window(hr.tumbling("5s")).agg(*texts, **named).write("collect:")
    return str(job.explain())


def test_text_that_is_one_aggregate_is_stored_as_that_aggregate() -> None:
    assert explained(total="sum(v)", n="count(*)") == explained(total=hr.sum("v"), n=hr.count())


def test_an_aggregate_that_is_needed_twice_is_computed_once() -> None:
    plan = explained(a="sum(v) / count(*)", b=hr.sum("v") * 2, c="sum(v + 0) + 1")
    assert plan.count("= sum(v)") == 2  # in the logical plan, and in the physical one
    assert "$sum(v + 0) = sum(v + 0)" in plan


def test_a_columns_own_value_is_there_in_a_running_aggregate(tmp_path: Path) -> None:
    rows = pa.Table.from_pylist(
        [{"k": "a", "t": i, "v": v, "x": 1.0} for i, v in enumerate([4, 8, 0])]
    )
    found = drive_one(rows, tmp_path, lambda s: s.key_by("k").agg(v="v - min(v)", unbounded=True))
    assert [(r["v"], r["x"]) for r in found] == [(0, 1.0), (4, 1.0), (0, 1.0)]


def drive_one(rows: pa.Table, folder: Path, build: Any) -> list[dict[str, Any]]:
    job = hr.Job("one")
    build(job.read(hr.rows(rows), time="t", delay="1s", name="rows")).write("collect:", name="out")
    return list(drive(job, folder).output("out").to_pylist())


def test_a_column_with_a_name_like_sql_is_that_column(tmp_path: Path) -> None:
    rows = pa.table({"k": ["a", "a"], "t": [1, 2], "v": [1, 2], "v + 1": [10, 20]})
    found = drive_one(
        rows,
        tmp_path,
        lambda s: s.window(hr.everything()).agg(
            a=hr.sum("v + 1") + 0, b="sum(`v + 1`) + 0", c="sum(v + 1) + 0"
        ),
    )
    assert [(r["a"], r["b"], r["c"]) for r in found] == [(30, 30, 5)]


def test_the_step_has_its_name_its_late_rows_and_its_best(tmp_path: Path) -> None:
    job = hr.Job("named")
    stream = job.read(hr.rows([{"k": "a", "t": 1, "v": 1}]), time="t", delay="1s", name="rows")
    result = stream.key_by("k").window(hr.tumbling("5s")).agg(m=hr.sum("v") / 2).named("stats")
    assert result.name == "stats"
    assert result.late.name == "stats.late"
    result.late.write("collect:", name="late")
    assert "stats.columns" not in str(job.explain())  # nobody reads it
    result.top(1, by="m").write("collect:", name="out")
    assert drive(job, tmp_path).output("out").to_pylist()[0]["m"] == 0.5


@pytest.mark.parametrize(
    ("text", "code", "says"),
    [
        ("sum(v) / count(*)", "HR-PLAN-015", "has no name"),
        ("1 + sum(max(v)) as a", "HR-AGG-013", "character 9: max(v) is inside another"),
        ("sum(v) + medain(v) as a", "HR-AGG-012", "character 10: there is no function 'medain'"),
        ("sum(v) + sum(v, x) as a", "HR-AGG-012", "sum takes one argument, not 2"),
        ("max_by(v) as a", "HR-AGG-012", "max_by takes two arguments, not 1"),
        ("sum(v) + x as a", "HR-AGG-015", "'x' is in no aggregate"),
        ("x + 1 as a", "HR-AGG-014", "aggregates nothing"),
        ("sum(v) + 'a' as a", "HR-EXPR-003", "in \"sum(v) + 'a'\""),
        ("sum(w) + 1 as a", "HR-EXPR-001", "'w'"),
        ("sum(k) + 1 as a", "HR-AGG-001", "sum(k)"),
        ("sum(distinct v) as a", "HR-EXPR-004", "DISTINCT"),
        ("sum(v) over () as a", "HR-EXPR-004", "OVER"),
        ("upper(k) filter (where v > 1) as a", "HR-EXPR-004", "FILTER belongs to an aggregate"),
        ("max(v) + 1 as k", "HR-PLAN-015", "'k' would be there twice"),
        ("sum(v as a", "HR-EXPR-004", ""),
    ],
)
def test_what_cannot_be_computed_is_refused_when_built(text: str, code: str, says: str) -> None:
    with pytest.raises(PlanError) as caught:
        explained(text)
    assert [p.code for p in caught.value.problems] == [code]
    assert says in str(caught.value)
    assert __file__.rsplit("/", 1)[1] in str(caught.value)


def test_more_that_is_refused() -> None:
    for code, build in {
        "HR-PLAN-021": lambda: explained(a=hr.max("v") == hr.min("v")),
        "HR-PLAN-015": lambda: explained("sum(v) + 1 as a", a=hr.count()),
        "HR-AGG-013": lambda: hr.sum(hr.max("v")),
        "HR-AGG-012": lambda: hr.sum("v") + Own("v").as_aggregate(),
    }.items():
        with pytest.raises(PlanError) as caught:
            build()
        assert caught.value.code == code
    with pytest.raises(PlanError, match="this agg replaces"):
        job = hr.Job("j")
        stream = job.read(hr.rows([{"k": "a", "v": 1}]))
        stream.key_by("k").agg("v - min(v) as d", v=hr.max("v"), unbounded=True).write("collect:")
        job.check()
    with pytest.raises(TypeError):
        _ = hr.sum("v") and hr.count()


class Own(hr.Aggregate):
    def as_aggregate(self) -> Any:
        from headrace.ops.agg.kinds import Aggregate

        return Aggregate("own", "v", own=self)


@pytest.mark.parametrize("over", ["window", "running"])
def test_a_column_with_the_name_of_a_derived_aggregate_is_refused(over):
    read = hr.Job("names").read(hr.rows([{"k": 1, "v": 2, "at": 3}]), time="at", delay="1s")
    odd = read.with_columns(**{"$sum(v)": "v"})
    with pytest.raises(PlanError, match="HR-AGG-017"):
        if over == "window":
            read.window(hr.tumbling("1s")).agg(**{"$sum(v)": hr.max("v")}, m="sum(v) + 0").head(1)
        else:
            odd.key_by("k").agg(m="sum(v) + 0", unbounded=True).head(1)
