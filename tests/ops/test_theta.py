"""theta: the library's bytes, merged as a whole, and sets combined within their bounds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from tests.ops.sketch_streams import STREAMS

import headrace as hr
from headrace.errors import PlanError
from headrace.hashing import hash_keys
from headrace.ops.agg import named
from headrace.ops.sketch.theta import Theta, k_of
from headrace.testing import Harness

AGGS = {"n": hr.theta("v", error=0.1)}
K = Theta(error=0.1).k


def table(values: Any, group: Any = 0) -> pa.Table:
    column = pa.array(values)
    return pa.table({"g": pa.array(np.broadcast_to(group, len(column))), "v": column})


def sketch(values: Any, aggs: Any = AGGS) -> bytes:
    (row,) = named.result(named.partial(table(values), ["g"], aggs), aggs).to_pylist()
    return bytes(row["n"])


@pytest.mark.parametrize("count", [0, 1, 2, K - 1, K, 2_000])
def test_bytes_are_the_librarys_while_nothing_is_left_out(count: int) -> None:
    """2,000 values leave out the largest: what is left is what the library says of them."""
    values = pa.array(np.random.default_rng(count).integers(0, 2**62, count))
    theirs = datasketches.update_theta_sketch(14)
    for value in hash_keys([values]).view(np.int64):
        theirs.update(int(value))
    ours = sketch(values if count else pa.array([None], pa.int64()))
    if count <= K:
        assert ours == theirs.compact().serialize()
        return
    read = datasketches.compact_theta_sketch.deserialize(ours)
    hashes = np.sort(np.frombuffer(theirs.compact().serialize()[16:], np.uint64))
    assert read.serialize() == ours and read.num_retained == K and read.is_ordered()
    assert np.array_equal(np.frombuffer(ours[24:], np.uint64), hashes[:K])
    assert read.theta64 == hashes[K]


@pytest.mark.parametrize("values", [range(500), [f"x{i}" for i in range(500)]])
def test_a_sketch_by_the_library_of_the_same_values_has_other_hashes(values: Any) -> None:
    """What the guide warns of: hashes are Headrace's own, and nothing in the bytes tells."""
    theirs = datasketches.update_theta_sketch(14)
    for value in values:
        theirs.update(value)
    both = datasketches.theta_union(14)
    both.update(theirs)
    both.update(datasketches.compact_theta_sketch.deserialize(sketch(list(values))))
    assert both.get_result().get_estimate() > 550  # of at most 500 different values


@pytest.mark.parametrize("count", [50, K + 1, 3_000])
def test_partials_merge_to_the_same_bytes_however_rows_are_divided(count: int) -> None:
    draw = np.random.default_rng(count)
    for _ in range(5):
        rows = table(draw.integers(0, 2 * count, 3 * count), draw.integers(0, 2, 3 * count))
        whole = named.partial(rows, ["g"], AGGS).sort_by("g")
        part = draw.integers(0, 5, rows.num_rows)
        pieces = [named.partial(rows.filter(pa.array(part == p)), ["g"], AGGS) for p in range(5)]
        first = named.merge(pa.concat_tables(pieces[:3]), ["g"], AGGS)
        merged = named.merge(pa.concat_tables([*pieces[3:], first]), ["g"], AGGS).sort_by("g")
        assert merged.equals(whole)


class SketchRow:
    def __init__(self, **sketches: bytes | None) -> None:
        self.__dict__.update(sketches)


SETS: dict[str, tuple[Any, Callable[[set[int], set[int]], set[int]]]] = {
    "one": ("a", lambda a, b: a),
    "union": (hr.theta_union("a", "b"), lambda a, b: a | b),
    "intersection": (hr.theta_intersect("a", "b"), lambda a, b: a & b),
    "difference": (hr.theta_difference("a", "b"), lambda a, b: a - b),
}


@pytest.mark.parametrize("stream", STREAMS)
def test_sets_are_within_their_bounds_for_95_of_100_streams(
    stream: Callable[[np.random.Generator], Any],
) -> None:
    within, inside = dict.fromkeys(SETS, 0), 0
    for seed in range(100):
        values = stream(np.random.default_rng(seed))
        left, right = values[: len(values) * 2 // 3], values[len(values) // 3 :]
        exact = {*left.tolist()}, {*right.tolist()}
        row = SketchRow(a=sketch(left), b=sketch(right))
        for name, (made, of) in SETS.items():
            found, count = hr.theta_count(made, bounds=True)(row), len(of(*exact))
            within[name] += found["low"] <= count <= found["high"]
            if name == "one":
                inside += abs(found["value"] - count) <= 0.1 * count
                assert hr.theta_count(made)(row) == found["value"]
    assert inside >= 95 and min(within.values()) >= 95, (inside, within)


def test_a_null_is_null_and_an_empty_set_is_empty() -> None:
    row = SketchRow(a=sketch([1, 2, 3]), b=None, c=sketch(pa.array([None], pa.int64())))
    assert hr.theta_count(hr.theta_union("a", "b"))(row) is None
    assert hr.theta_count(hr.theta_union("a", "c"), bounds=True)(row) == {
        "value": 3, "low": 3, "high": 3,
    }  # fmt: skip
    assert hr.theta_count(hr.theta_intersect("a", "c"))(row) == 0
    assert hr.theta_count(hr.theta_difference("a", "c", "a"))(row) == 0


def job(window: Any, **size: Any) -> hr.Job:
    made = hr.Job("devices")
    schema = "user string, device string, at bigint"
    rows = made.read("log:a", schema=schema, time="at", delay="1s", name="in")
    rows = rows.with_columns(
        phone="case when device = 'phone' then user end",
        desk="case when device = 'desk' then user end",
    )
    found = rows.window(window).agg(
        p=hr.theta("phone", **size), d=hr.theta("desk", **size),
        phones=hr.collect("phone"), desks=hr.collect("desk"), name="w",
    )  # fmt: skip
    sets = {"both": hr.theta_intersect("p", "d"), "only": hr.theta_difference("p", "d"),
            "any": hr.theta_union("p", "d")}  # fmt: skip
    found = found.with_columns(
        both=hr.theta_count(sets["both"]), only=hr.theta_count(sets["only"]),
        any=hr.theta_count(sets["any"], bounds=True), union=sets["any"],
    )  # fmt: skip
    found.write("log:out", name="out")
    return made


@pytest.mark.parametrize(
    "window",
    [hr.tumbling("10s"), hr.sliding("20s", every="5s"), hr.session("3s"),
     hr.cumulating("20s", every="5s"), hr.everything()],
)  # fmt: skip
def test_windows_of_every_kind_with_a_crash_between(window: Any) -> None:
    draw = np.random.default_rng(1)
    at = np.cumsum(draw.integers(0, 900, 60)).tolist()
    rows = [
        {"user": f"u{draw.integers(0, 25)}", "device": ["phone", "desk"][draw.integers(0, 2)],
         "at": t} for t in at
    ]  # fmt: skip
    outputs = []
    for step in (60, 7):
        with Harness(job(window)) as test:
            for low in range(0, 60, step):
                if low % 14 == 0:
                    test.crash()
                test.send("in", rows[low : low + step])
            test.restart()
            test.end()
            outputs.append(sorted(test.output("out"), key=lambda r: r["window_start"]))
    assert outputs[0] and str(outputs[0]) == str(outputs[1])  # bytes of sketches, too
    for row in outputs[0]:
        p, d = {*row["phones"]}, {*row["desks"]}
        assert (row["both"], row["only"]) == (len(p & d), len(p - d))
        assert row["any"] == dict.fromkeys(("value", "low", "high"), len(p | d))


def test_another_size_is_refused_for_stored_state() -> None:
    with Harness(job(hr.tumbling("10s"))) as test:
        test.send("in", [{"user": "a", "device": "desk", "at": 1_000}])
        test.restart(job(hr.tumbling("10s"), error=0.05))  # the same size
        with pytest.raises(hr.StateError, match=r"HR-EVOLVE.*k=2501.*k=626"):
            test.restart(job(hr.tumbling("10s"), error=0.1))


def test_size_and_error_and_what_explain_says() -> None:
    assert (k_of(None, None), k_of(0.1, None), k_of(None, 20_032)) == (2_501, 626, 2_501)
    plan = str(job(hr.tumbling("10s")).explain())
    assert "p = theta(phone) (19.6 KB per key at most)" in plan
    assert "any = theta_count(theta_union(p, d), bounds=True)" in plan


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: hr.theta("v", size=100), "HR-APPROX-003"),
        (lambda: hr.theta("v", error=1e-4), "HR-APPROX-003"),
        (lambda: hr.theta("v", error=0.1, size=500), "HR-APPROX-002"),
        (lambda: hr.theta_union("a"), "HR-APPROX-005"),
        (lambda: hr.theta_intersect("a", 5), "HR-APPROX-005"),  # type: ignore[arg-type]
        (lambda: hr.theta_union(hr.theta_count("a"), "b"), "HR-APPROX-005"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], Any], code: str) -> None:
    with pytest.raises(PlanError, match=code):
        make()


@pytest.mark.parametrize(("name", "code"), [("v", "HR-APPROX-005"), ("w", "HR-EXPR-001")])
def test_columns_that_are_no_sketches_are_refused(name: str, code: str) -> None:
    made = hr.Job("j")
    rows = made.read(hr.rows([{"v": 1}])).with_columns(n=hr.theta_count(name))
    rows.write("collect:")
    with pytest.raises(PlanError) as caught:
        made.check()
    assert [p.code for p in caught.value.problems] == [code]


def test_bytes_that_are_no_sketch_are_dead_letters_with_plain_words() -> None:
    made = hr.Job("j")
    read = made.read("log:a", schema="a binary, b binary", name="in")
    both = hr.theta_union("a", hr.col("b"))
    read.with_columns(n=hr.theta_count(both)).write("collect:", name="out")
    good = sketch([1, 2, 3])
    with Harness(made) as test:
        test.send("in", [{"a": good, "b": bad} for bad in (good, b"", b"no sketch", good[:9])])
        assert [row["n"] for row in test.output("out")] == [3]
        letters = test.dead()
        assert len(letters) == 3 and all("HR-APPROX-007" in str(row) for row in letters)


TYPED = [
    ("bigint", "double"), ("decimal(12,2)", "decimal(14,4)"), ("bigint", "date"),
    ("string", "binary"), ("bigint", "boolean"), ("int", "bigint"), ("string", "string"),
]  # fmt: skip


@pytest.mark.parametrize("how", ["window", "expression", "renamed", "union", "join"])
@pytest.mark.parametrize(("one", "other"), TYPED)
def test_sets_of_values_of_different_types_are_refused(one: str, other: str, how: str) -> None:
    made, window = hr.Job("typed"), hr.tumbling("10s")
    schema = f"x {one}, y {other}, at bigint"
    read = made.read("log:a", schema=schema, time="at", delay="1s", name="in")
    sets: Any = read.window(window)
    if how == "join":
        other_side = sets.agg(b=hr.theta("y"), k=hr.count(), name="r").select("b", "k")
        sets = sets.agg(a=hr.theta("x"), k=hr.count(), name="l").select("a", "k")
        sets = sets.join(other_side, on="k", within=("0s", "1s"))
    elif how == "expression":
        some = "case when at > 5 then {} end"
        sets = sets.agg(a=hr.theta(some.format("x")), b=hr.theta(some.format("y")))
    else:
        sets = sets.agg(a=hr.theta("x"), b=hr.theta("y"))
    if how == "renamed":
        sets = sets.where("window_start is not null").select(b="a", a="b")
    if how == "union":
        sets = sets.with_columns(b=hr.theta_union("b", "b"))
    sets.with_columns(n=hr.theta_count(hr.theta_intersect("a", "b"))).write("collect:")
    if (one, other) in TYPED[-2:]:
        return made.check()
    with pytest.raises(PlanError) as caught:
        made.check()
    assert [p.code for p in caught.value.problems] == ["HR-APPROX-006"]
    assert "is of" in str(caught.value) and caught.value.problems[0].site
    return None


@pytest.mark.parametrize(
    "column, code", [("nope", "HR-EXPR-001"), ("nope + 1", "HR-EXPR-001"), ("g + 1", "HR-EXPR-003")]
)
def test_a_set_of_what_is_wrong_is_one_problem(column: str, code: str) -> None:
    made = hr.Job("wrong")
    read = made.read("log:a", schema="g string, at bigint", time="at", delay="1s", name="in")
    sets = read.window(hr.tumbling("10s")).agg(a=hr.theta(column), b=hr.theta("g"))
    sets.with_columns(n=hr.theta_count(hr.theta_union("a", "b"))).write("collect:")
    with pytest.raises(PlanError) as caught:
        made.check()
    assert [p.code for p in caught.value.problems] == [code]


def test_sets_of_expressions_are_counted() -> None:
    rows = [{"g": "ab"[i % 2], "v": i // 2 % 30, "at": i} for i in range(100)]
    read = hr.Job("parts").read(hr.rows(rows), time="at", delay="1s")
    sets = read.window(hr.everything()).agg(
        a=hr.theta("case when g = 'a' then v end"), b=hr.theta(hr.col("v") + 10)
    )
    both = sets.with_columns(n=hr.theta_count(hr.theta_intersect("a", "b")))
    assert both.head(1, quiet=True)["n"].to_pylist() == [20]


@pytest.mark.spark
def test_on_spark_and_read_by_its_own_functions(spark: Any, tmp_path: Path) -> None:
    users = [{"u": i % 700, "v": i % 900, "at": i} for i in range(4_000)]
    made = hr.Job("sets")
    read = made.read(hr.rows(users), time="at", delay="1s")
    sets = read.window(hr.everything()).agg(a=hr.theta("u"), b=hr.theta("v"))
    found = sets.with_columns(n=hr.theta_count(hr.theta_intersect("a", "b")))
    found.write("collect:", name="out")
    run = hr.run(made, folder=str(tmp_path), until="end", max_batch=1_500)
    assert run.wait(timeout=300).state == "ended"
    (row,) = run.output("out").to_pylist()
    assert row["n"] == 700
    frame = spark.createDataFrame([(row["a"], row["b"])], "a binary, b binary")
    sql = "theta_sketch_estimate(theta_union(a, b)) as n", "theta_sketch_estimate(a) as m"
    assert tuple(frame.selectExpr(*sql).collect()[0]) == (900, 700)
