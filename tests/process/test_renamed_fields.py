"""Fields of what is kept that go on under another name: `was_fields=`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.ops.process.migration import fits, refitted
from headrace.testing import Harness
from tests.process.playing import SCHEMA, job_of, said
from tests.process.test_evolving import begun, keeping, record, shared_job, values

OldIn = record("In", ("latitude", pa.float32()))
Old = record("Rec", ("temp", pa.int32()), ("note", str), ("location", OldIn))
NewIn = record("In", ("lat", pa.float64()), ("lon", float, 0.5))
New = record("Rec", ("celsius", pa.int64()), ("place", NewIn), ("note", str))
WAS = {"celsius": "temp", "place": "location", "place.lat": "latitude"}
OLD_DDL = "struct<temp:int,note:string,location:struct<latitude:float>>"
NEW_DDL = "struct<celsius:bigint,place:struct<lat:double,lon:double>,note:string>"
MAKE = {
    "value": hr.value, "list": hr.list_of, "last": lambda kind, **m: hr.last_of(2, kind, **m),
    "map": lambda kind, **m: hr.map_of(str, kind, **m),
    "reducing": lambda kind, **m: hr.reducing(kind, lambda a, b: b, **m),
}  # fmt: skip
TOLD = [
    "value     p.r.celsius: renamed from temp", "value     p.r.celsius: widened from int to bigint",
    "value     p.r.place: renamed from location",
    "value     p.r.place.lat: renamed from latitude",
    "value     p.r.place.lat: widened from float to double", "value     p.r.place.lon: new",
]  # fmt: skip


def put(self: Any, made: Any, how: str) -> None:
    match how:
        case "value":
            self.r = made
        case "list" | "last":
            self.r.append(made)
        case "map":
            self.r["key"] = made
        case "reducing":
            self.r.add(made)


@pytest.mark.parametrize("how", MAKE)
@pytest.mark.parametrize("typed", ["dataclass", "ddl"])
def test_renamed_fields_go_on_whatever_holds_them(harness: Any, how: str, typed: str) -> None:
    old, new = (Old, New) if typed == "dataclass" else (OLD_DDL, NEW_DDL)

    def fill(self: Any, v: int) -> None:
        made = Old(v, "dry", OldIn(1.5))
        put(self, made if typed == "dataclass" else dataclasses.asdict(made), how)

    test = begun(harness, keeping(r=MAKE[how](old), fill=fill))
    changed = keeping(r=MAKE[how](new, was_fields=WAS))
    test.restart(job_of(changed))
    assert values(test) == TOLD
    test.output()
    test.send("rows", [("a", -1, 9), ("b", -1, 9)])
    if typed == "dataclass":
        kept = "Rec(celsius={}, place=In(lat=1.5, lon=0.5), note='dry')"
    else:
        kept = "{{'celsius': {}, 'place': {{'lat': 1.5, 'lon': None}}, 'note': 'dry'}}"
    for (_, line), v in zip(sorted(said(test)), (3, 4), strict=True):
        assert kept.format(v) in line
    test.restart(job_of(changed))  # it may go on saying so
    assert values(test) == []


def test_the_value_and_its_field_may_be_renamed_at_once_and_again_later(harness: Any) -> None:
    a, b, c = (record("R", (name, int)) for name in ("a", "b", "c"))
    test = begun(harness, keeping(x=hr.value(a), fill=lambda s, v: setattr(s, "x", a(v))))
    test.restart(job_of(keeping(y=hr.value(b, was="x", was_fields={"b": "a"}))))
    assert values(test) == ["value     p.y: renamed from x", "value     p.y.b: renamed from a"]
    test.restart(job_of(keeping(y=hr.value(c, was_fields={"c": "b"}))))
    test.output()
    test.send("rows", [("a", -1, 9)])
    assert "R(c=3)" in said(test)[-1][1]


def test_a_field_that_nobody_takes_over_still_needs_consent(harness: Any) -> None:
    old, new = record("R", ("a", int), ("gone", int)), record("R", ("b", int))
    test = begun(harness, keeping(r=hr.value(old)))
    changed = job_of(keeping(r=hr.value(new, was_fields={"b": "a"})))
    with pytest.raises(hr.StateError, match=r"HR-EVOLVE-002 .*'p\.r\.gone'"):
        test.restart(changed)
    test.restart(changed, drop="p.r.gone")


def test_shared_maps_and_functions_with_a_state_can_say_it_too(harness: Any) -> None:
    old, new = record("Rule", ("limit", int)), record("Rule", ("above", int))
    test: Harness = harness(shared_job(old), tasks=3)
    test.send("rules", [("x", 7, 1)])
    changed = shared_job(new)
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001"):
        test.restart(changed)
    test.restart(shared_job(new, was_fields={"above": "limit"}))
    test.send("rows", [(k, 0, 0) for k in "abcdef"])
    assert {s for _, s in said(test)} == {"{7: Rule(above=7)}"}


def state_job(state: Any, fn: Any) -> hr.Job:
    job = hr.Job("process")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h").key_by("k")
    rows.map_with_state(fn, state=state, output="said string", unbounded=True, name="p").write(
        "collect:", name="out"
    )
    return job


def test_the_state_of_a_function_is_a_value_with_fields(harness: Any) -> None:
    old, new = record("S", ("n", int)), record("S", ("count", int))
    test = harness(state_job(hr.value(old), lambda row, s: ((repr(s),), s or old(row.v))))
    test.send("rows", [("a", 5, 1)])
    test.restart(
        state_job(hr.value(new, was_fields={"count": "n"}), lambda row, s: ((repr(s),), s))
    )
    test.output()
    test.send("rows", [("a", 0, 2)])
    assert said(test) == [("S(count=5)",)]


def test_update_state_by_key_takes_a_declaration(harness: Any) -> None:
    def job(schema: Any, fn: Any) -> hr.Job:
        made = hr.Job("process")
        rows = made.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h")
        sums = rows.key_by("k").update_state_by_key(fn, schema=schema, unbounded=True, name="p")
        sums.write("collect:", name="out")
        return made

    def before(rows: Any, state: Any) -> Any:
        return Sums(sum(r.v for r in rows) + (state.total if state else 0))

    def after(rows: Any, state: Any) -> Any:
        return dataclasses.replace(state, whole=state.whole + sum(r.v for r in rows))

    Sums, Now = record("Sums", ("total", int)), record("Sums", ("whole", int), ("more", int, 7))
    test = harness(job(Sums, before))
    test.send("rows", [("a", 5, 1), ("a", 6, 1), ("b", 1, 1)])
    test.restart(job(hr.value(Now, was_fields={"whole": "total"}), after))
    assert values(test) == [
        "value     p.state.whole: renamed from total", "value     p.state.more: new",
    ]  # fmt: skip
    test.output()
    test.send("rows", [("a", 10, 2)])
    (row,) = test.output()
    assert (row["k"], row["whole"], row["more"]) == ("a", 21, 7)


@pytest.mark.parametrize(("kind", "given"), [("bigint", {"value": 12}),
                                             ("struct<n:bigint>", {"n": 12})])  # fmt: skip
def test_a_declared_state_begins_with_its_default(harness: Any, kind: str, given: Any) -> None:
    def add(rows: Any, state: Any) -> Any:
        more = sum(r.v for r in rows)
        return {"n": state["n"] + more} if isinstance(state, dict) else state + more

    job = hr.Job("process")
    rows = job.read("log:rows", schema=SCHEMA, name="rows")
    state = hr.value(kind, default=10 if kind == "bigint" else {"n": 10})
    rows.key_by("k").update_state_by_key(add, schema=state, unbounded=True).write(
        "collect:", name="out"
    )
    test = harness(job)
    test.send("rows", [("a", 2, 1)])
    assert test.output() == [{"k": "a", **given}]


# what is refused

AB = record("R", ("a", int), ("b", int), ("i", record("I", ("x", int))))
BAD = [
    ({"c": "z"}, "was_fields names 'c', which is not a field of the stored", "There is 'a', 'b'"),
    ({"i.y": "z"}, "was_fields names 'i.y', which is not a field", "There is 'x'."),
    ({"a.x": "z"}, "was_fields names 'a.x', which is not a field", "There is no field."),
    ({"a": "b"}, "the field 'a' says it was 'b', which is still there", "was_fields={"),
    ({"a": "b", "b": "a"}, "the field 'a' says it was 'b', which is still there", "was_fields={"),
    ({"a": "z", "b": "z"}, "the fields 'a' and 'b' both say they were 'z'", "was_fields={"),
    ("z", "was_fields is 'z', not a dict", "was_fields={"),
    ({"a": None}, "was_fields says 'a': None, which are not two names", "was_fields={"),
]  # fmt: skip


@pytest.mark.parametrize("make", MAKE.values())
@pytest.mark.parametrize(("was", "fact", "hint"), BAD)
def test_what_cannot_be_meant_is_refused_where_it_is_declared(
    make: Any, was: Any, fact: str, hint: str
) -> None:
    with pytest.raises(hr.PlanError) as refused:
        make(AB, was_fields=was)
    error = refused.value
    assert error.code == "HR-PLAN-039" and fact in str(error) and hint in error.hint
    assert error.site is not None and error.site.file.endswith("test_renamed_fields.py")


def test_names_in_different_records_do_not_clash() -> None:
    hr.value(AB, was_fields={"a": "z", "i.x": "z"})
    hr.value(AB, was_fields={"i.x": "a"})  # `a` of the record inside, which is gone
    with pytest.raises(hr.PlanError, match=r"HR-PLAN-039 .*not a field"):
        hr.value(int, was_fields={"a": "b"})


@pytest.mark.parametrize("fresh", [("b", int), ("b", int, 0)])  # a default does not excuse it
def test_a_name_that_the_state_does_not_know_is_refused_at_the_start(
    harness: Any, fresh: Any
) -> None:
    test = begun(harness, keeping(r=hr.value(record("R", ("a", int), ("z", int)))))
    with pytest.raises(hr.StateError, match="HR-EVOLVE-003") as refused:
        changed = record("R", ("z", int), fresh)
        test.restart(job_of(keeping(r=hr.value(changed, was_fields={"b": "aa"}))))
    text = str(refused.value)
    assert "the value 'r.b' says it was 'aa', but what is stored has 'a', 'z'" in text
    assert "Correct was_fields=" in text
    both = record("R", ("z", str), fresh)
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001"):  # more is wrong than a name
        test.restart(job_of(keeping(r=hr.value(both, was_fields={"b": "aa"}))))
    test.restart()  # as it was, it goes on


# against plain Python

NAMES = ["a", "b", "c", "d"]


@st.composite
def renamings(draw: Any, depth: int = 3) -> tuple[Any, Any, dict[str, str], Any]:
    """A type, the type it becomes, was_fields, and a function that does it to plain values."""
    kinds = ["record", "list", "map", "int"] if depth < 3 else ["record", "list", "map"]
    what = draw(st.sampled_from(kinds if depth else ["int"]))
    if what == "int":
        wider = draw(st.booleans())
        return pa.int32(), pa.int64() if wider else pa.int32(), {}, lambda v: v
    if what == "list":
        old, new, was, change = draw(renamings(depth - 1))
        return pa.list_(old), pa.list_(new), was, _each(change)
    if what == "map":
        old, new, was, change = draw(renamings(depth - 1))
        return pa.map_(pa.string(), old), pa.map_(pa.string(), new), was, _entries(change)
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    parts = {n: draw(renamings(depth - 1)) for n in names}
    now = {n: draw(st.sampled_from([n, f"{n}_now"])) for n in names}
    was = {new: old for old, new in now.items() if new != old}
    for n in names:
        was |= {f"{now[n]}.{path}": old for path, old in parts[n][2].items()}
    order = draw(st.permutations(names))
    old = pa.struct([(n, parts[n][0]) for n in names])
    new = pa.struct([(now[n], parts[n][1]) for n in order])
    return old, new, was, _record({n: (now[n], parts[n][3]) for n in order})


def _each(change: Any) -> Any:
    return lambda v: None if v is None else [change(one) for one in v]


def _entries(change: Any) -> Any:
    return lambda v: None if v is None else [(k, change(one)) for k, one in v]


def _record(parts: dict[str, tuple[str, Any]]) -> Any:
    return lambda v: (
        None if v is None else {new: change(v[old]) for old, (new, change) in parts.items()}
    )


def sample(kind: pa.DataType, draw: Any) -> Any:
    if draw(st.integers(0, 5)) == 0:
        return None
    if pa.types.is_struct(kind):
        return {f.name: sample(f.type, draw) for f in kind}
    if pa.types.is_list(kind):
        return [sample(kind.value_type, draw) for _ in range(draw(st.integers(0, 2)))]
    if pa.types.is_map(kind):
        return [(k, sample(kind.item_type, draw)) for k in ("x", "y")[: draw(st.integers(0, 2))]]
    return draw(st.integers(-9, 9))


@settings(max_examples=300)
@given(st.data())
def test_every_value_is_what_it_was_under_the_new_names(data: Any) -> None:
    old, new, was, change = data.draw(renamings())
    kept = [sample(old, data.draw) for _ in range(3)]
    told = {part.verdict for part in fits(old, new, "r", None, was)}
    assert told <= {"renamed", "widened"} and ("renamed" in told) == bool(was)
    made = refitted(pa.array(kept, old), new, None, was)
    assert made.type == new and made.to_pylist() == [change(v) for v in kept]


# on Spark


class Before(hr.KeyedProcess):
    output = "k string, said string"
    r = hr.value(OLD_DDL)
    seen = hr.list_of(OLD_DDL)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.r = {"temp": row.v, "note": "dry", "location": {"latitude": 1.5}}
        self.seen.append(self.r)


class After(hr.KeyedProcess):
    output = "k string, said string"
    r = hr.value(NEW_DDL, was_fields=WAS)
    seen = hr.list_of(NEW_DDL, was_fields=WAS)

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (ctx.key, f"{self.r['celsius']} {self.r['place']['lat']} {len(self.seen)}")


@pytest.mark.spark
def test_a_job_on_spark_goes_on_with_renamed_fields(spark: Any, tmp_path: Path) -> None:
    log = hr.EmbeddedLog(tmp_path / "log")
    log.create("rows", schema=SCHEMA, partitions=2)

    def job(fn: hr.KeyedProcess) -> hr.Job:
        made = hr.Job("process")
        rows = made.read("log:rows", log=str(tmp_path / "log"), name="rows").key_by("k")
        rows.process(fn, unbounded=True, name="p").write("collect:", name="out")
        return made

    log.append("rows", [{"k": f"k{i % 7}", "v": i, "at": i} for i in range(70)], key="k")
    run = hr.run(job(Before()), folder=str(tmp_path / "job"))
    run.catch_up()
    run.stop()
    log.append("rows", [{"k": f"k{i}", "v": -1, "at": 99} for i in range(7)], key="k")
    run = hr.run(job(After()), folder=str(tmp_path / "job"))
    run.catch_up()
    run.stop()
    found = {row["k"]: row["said"] for row in run.output("out").to_pylist()}
    assert found == {f"k{i}": f"{63 + i} 1.5 10" for i in range(7)}
