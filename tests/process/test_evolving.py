"""Changed declarations over state that is there: what goes on, what needs consent, what not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.state import faults
from headrace.testing import Harness
from tests.process.playing import SCHEMA, job_of, said


def record(name: str, *fields: Any) -> Any:
    return dataclasses.make_dataclass(name, fields)


def keeping(**kept: Any) -> hr.KeyedProcess:
    """Shows what it keeps of a key; a row with v >= 0 first lets `fill` write it."""
    fill = kept.pop("fill", None)

    def on_row(self: Any, row: Any, ctx: Any) -> Any:
        if row.v >= 0 and fill is not None:
            fill(self, row.v)
        return (ctx.key, repr({n: _plain(getattr(self, n)) for n in sorted(kept)}))

    members = {"output": "k string, said string", "on_row": on_row, **kept}
    return type("Keeping", (hr.KeyedProcess,), members)()  # type: ignore[no-any-return]


def _plain(kept: Any) -> Any:
    return getattr(kept, "value", kept) if not isinstance(kept, int | str | float) else kept


def told(test: Harness, key: str = "a", at: int = 50) -> Any:
    test.output()
    test.send("rows", [(key, -1, at)])
    return eval(said(test)[-1][1], {"Rec": dict, "deque": lambda x, maxlen: list(x)})


def begun(harness: Any, fn: hr.KeyedProcess) -> Harness:
    test: Harness = harness(job_of(fn))
    test.send("rows", [("a", 3, 1), ("b", 4, 1)])
    return test


def values(test: Harness) -> list[str]:
    assert test.comparison is not None
    return [str(c) for c in test.comparison.changes if c.role == "value"]


def test_a_new_value_starts_with_its_default_for_old_keys(harness: Any) -> None:
    test = begun(harness, keeping(n=hr.value(int), fill=lambda s, v: setattr(s, "n", v)))
    changed = keeping(n=hr.value(int), m=hr.value(int, default=7), seen=hr.list_of(str),
                      total=hr.reducing(int, max), top=hr.value(str))  # fmt: skip
    test.restart(job_of(changed))
    assert values(test) == [
        "value     p.m: new", "value     p.seen: new", "value     p.total: new",
        "value     p.top: new",
    ]  # fmt: skip
    assert told(test) == {"n": 3, "m": 7, "seen": [], "total": None, "top": None}
    test.restart()
    assert values(test) == []


def test_a_value_that_is_dropped_needs_consent(harness: Any) -> None:
    def fill(self: Any, v: int) -> None:
        self.n, self.old = v, str(v)

    test = begun(harness, keeping(n=hr.value(int), old=hr.value(str), fill=fill))
    changed = job_of(keeping(n=hr.value(int)))
    with pytest.raises(hr.StateError, match=r"HR-EVOLVE-002 the program no longer has 'p\.old'"):
        test.restart(changed)
    test.restart(changed, drop="p.old")
    assert told(test) == {"n": 3}
    test.restart(job_of(keeping(n=hr.value(int), old=hr.value(str, default="fresh"))))
    assert told(test) == {"n": 3, "old": "fresh"}  # what was dropped does not come back


def test_a_renamed_value_goes_on_and_can_be_renamed_again(harness: Any) -> None:
    test = begun(harness, keeping(a=hr.value(int), fill=lambda s, v: setattr(s, "a", v)))
    test.restart(job_of(keeping(b=hr.value(int, was="a"))))
    assert values(test) == ["value     p.b: renamed from a"]
    assert told(test) == {"b": 3}
    test.restart(job_of(keeping(b=hr.value(int, was="a"))))  # it may go on saying so
    test.restart(job_of(keeping(c=hr.value(int, was="b"))))
    assert told(test) == {"c": 3} and told(test, "b") == {"c": 4}


WIDER = [
    ("tinyint", "smallint", 3), ("smallint", "int", 3), ("int", "bigint", 3),
    ("tinyint", "bigint", 3), ("float", "double", 3.0), ("int", "double", 3.0),
    ("smallint", "float", 3.0), ("decimal(5,1)", "decimal(10,2)", "3.00"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "kept"), WIDER)
def test_a_type_may_be_wider(harness: Any, old: str, new: str, kept: Any) -> None:
    test = begun(harness, keeping(n=hr.value(old), fill=lambda s, v: setattr(s, "n", _of(old, v))))
    test.restart(job_of(keeping(n=hr.value(new))))
    assert values(test) == [f"value     p.n: widened from {old} to {new}"]
    test.output()
    test.send("rows", [("a", -1, 9)])
    assert str(kept) in said(test)[-1][1]


def _of(kind: str, v: int) -> Any:
    from decimal import Decimal

    return Decimal(v) if "decimal" in kind else float(v) if kind == "float" else v


NOT = [
    (hr.value("bigint"), hr.value("int"), "was bigint and is int, which may not hold what is"),
    (hr.value("double"), hr.value("float"), "was double and is float, which may not hold"),
    (hr.value("bigint"), hr.value("double"), "was bigint and is double"),
    (hr.value("int"), hr.value("float"), "was int and is float"),
    (hr.value(int), hr.value(str), "was bigint and is string"),
    (hr.value(int), hr.list_of(int), "was a value and is a list"),
    (hr.list_of(int), hr.last_of(3, int), "was a list and is a last"),
    (hr.map_of(str, int), hr.map_of(int, int), "was string and is bigint"),
    (hr.value(record("R", ("x", int))), hr.value(record("R", ("x", str))),
     "'n.x' was bigint and is string"),
    *[(make(record("R", ("x", int))), make(record("R", ("x", int), ("y", int))),
       "'n.y' is new, and has neither a default in its class nor a type with None")
      for make in (hr.value, hr.list_of, lambda kind: hr.map_of(str, kind),
                   lambda kind: hr.last_of(2, kind), lambda kind: hr.value(kind | None),
                   lambda kind: hr.value(dict[str, list[kind]]),
                   lambda kind: hr.value(tuple[kind, ...]))],
    (hr.value(record("R", ("i", record("I", ("x", int))))),
     hr.value(record("R", ("i", record("I", ("x", int), ("y", str))))), "'n.i.y' is new, and has"),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "because"), NOT)
def test_what_cannot_be_is_refused_with_the_reason(
    harness: Any, old: Any, new: Any, because: str
) -> None:
    test = begun(harness, keeping(n=old))
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001") as refused:
        test.restart(job_of(keeping(n=new)))
    assert because in str(refused.value)
    test.restart()  # as it was, it goes on


def test_another_key_is_refused_beside(harness: Any) -> None:
    test = begun(harness, keeping(n=hr.value(int)))
    job = hr.Job("process")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h")
    made = rows.key_by("v").process(keeping(n=hr.value(str)), unbounded=True, name="p")
    made.write("collect:", name="out")
    with pytest.raises(hr.StateError) as refused:
        test.restart(job)
    for changed in ("its key was string and is bigint: keys are found by", "; the value 'n' was"):
        assert changed in str(refused.value)


OldIn = record("In", ("a", pa.float32()))
Old = record("Rec", ("x", pa.int32()), ("gone", str), ("inner", OldIn))
NewIn = record("In", ("a", pa.float64()), ("b", str, "b!"))
New = record("Rec", ("x", pa.int64()), ("inner", NewIn), ("more", int, 5),
             ("tags", list[str], dataclasses.field(default_factory=list)))  # fmt: skip


@pytest.mark.parametrize("how", ["value", "list", "map", "last"])
def test_fields_of_records_are_added_dropped_and_widened(harness: Any, how: str) -> None:
    def fill(self: Any, v: int) -> None:
        made = Old(v, "x", OldIn(1.5))
        match how:
            case "value":
                self.r = made
            case "list" | "last":
                self.r.append(made)
            case "map":
                self.r["key"] = made

    def declared(kind: Any) -> Any:
        made = {"value": hr.value, "list": hr.list_of, "last": lambda k: hr.last_of(2, k)}
        return hr.map_of(str, kind) if how == "map" else made[how](kind)

    test = begun(harness, keeping(r=declared(Old), fill=fill))
    changed = job_of(keeping(r=declared(New)))
    with pytest.raises(hr.StateError, match=r"p\.r\.gone"):
        test.restart(changed)
    test.restart(changed, drop=["p.r.gone"])
    assert values(test) == [
        "value     p.r.x: widened from int to bigint",
        "value     p.r.inner.a: widened from float to double", "value     p.r.inner.b: new",
        "value     p.r.more: new", "value     p.r.tags: new", "value     p.r.gone: dropped",
    ]  # fmt: skip
    test.output()
    test.send("rows", [("a", -1, 9)])
    assert "Rec(x=3, inner=In(a=1.5, b='b!'), more=5, tags=[])" in said(test)[-1][1]


def test_a_new_field_may_be_none_or_start_with_its_default_also_in_what_may_be_none(
    harness: Any,
) -> None:
    old = record("Rec", ("x", int))
    new = record("Rec", ("x", int), ("y", int | None), ("z", int, 7))  # y would need no default
    test = begun(
        harness,
        keeping(r=hr.value(old | None), fill=lambda s, v: setattr(s, "r", old(v))),
    )
    test.restart(job_of(keeping(r=hr.value(new | None))))
    assert values(test) == ["value     p.r.y: new", "value     p.r.z: new"]
    test.output()
    test.send("rows", [("a", -1, 9)])
    assert "Rec(x=3, y=None, z=7)" in said(test)[-1][1]


def test_a_life_can_be_given_changed_and_taken(harness: Any) -> None:
    test = begun(harness, keeping(n=hr.value(int, default=0), fill=lambda s, v: setattr(s, "n", v)))
    test.watermark("rows", 5_000)
    lived = keeping(n=hr.value(int, default=0, ttl="10s"))
    test.restart(job_of(lived))  # it counts from the change: 5 s
    assert values(test) == ["value     p.n: changed from no ttl to a ttl by event time"]
    assert told(test, "a", 14_999) == {"n": 3}
    assert told(test, "b", 15_000) == {"n": 0}
    test.watermark("rows", 15_000)
    test.send("rows", [("c", -1, 15_000)])
    assert test.state("p")["values"].num_rows == 0  # a and b are forgotten, c is nothing yet
    test.restart(job_of(keeping(n=hr.value(int, default=1))))
    assert told(test, "a", 20_000) == {"n": 1}


def test_timers_that_nobody_would_hear_need_consent(harness: Any) -> None:
    class Timing(hr.KeyedProcess):
        output = "k string"

        def on_row(self, row: Any, ctx: Any) -> None:
            ctx.clock_timer(99_000)

        def on_timer(self, time: int, ctx: Any) -> Any:
            return (ctx.key,)

    class Deaf(hr.KeyedProcess):
        output = "k string"

        def on_row(self, row: Any, ctx: Any) -> None: ...

    test = begun(harness, Timing())
    with pytest.raises(hr.StateError, match=r"p\.on_timer"):
        test.restart(job_of(Deaf()))
    test.restart(job_of(Deaf()), drop="p.on_timer")
    test.restart(job_of(Timing()))
    test.advance("1h")
    assert said(test) == []


@pytest.mark.parametrize("stays", [True, False])  # whether the value that was meant is lost
def test_a_name_before_that_the_state_does_not_know_is_refused(harness: Any, stays: bool) -> None:
    test = begun(harness, keeping(n=hr.value(int), fill=lambda s, v: setattr(s, "n", v)))
    kept = {"n": hr.value(int)} if stays else {}
    wrong = job_of(keeping(m=hr.value(int, was="nn"), **kept))
    with pytest.raises(hr.StateError, match="HR-EVOLVE-003") as refused:
        test.restart(wrong, drop=["p.n"])
    text = str(refused.value)
    assert "the value 'm' says it was 'nn', but what is stored has 'n'" in text
    assert "Correct was=" in text
    test.restart(job_of(keeping(m=hr.value(int, was="n"))))
    assert told(test) == {"m": 3}
    test.restart(job_of(keeping(m=hr.value(int, was="n"))))  # was= has done its work, and may stay
    assert told(test) == {"m": 3}


def test_a_renamed_step_with_a_renamed_value(harness: Any) -> None:
    test = begun(harness, keeping(a=hr.value(int), fill=lambda s, v: setattr(s, "a", v)))
    job = hr.Job("process")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h")
    made = rows.key_by("k").process(
        keeping(b=hr.value(int, was="a")), unbounded=True, name="q", was="p"
    )
    made.write("collect:", name="out")
    test.restart(job)
    assert values(test) == ["value     q.b: renamed from a"]
    assert told(test) == {"b": 3}


def test_the_order_of_declarations_does_not_matter(harness: Any) -> None:
    def fill(self: Any, v: int) -> None:
        self.a, self.b = v, -v

    test = begun(harness, keeping(a=hr.value(int), b=hr.value(int), fill=fill))
    test.restart(job_of(keeping(b=hr.value(int), a=hr.value(int))))
    assert values(test) == [] and told(test) == {"a": 3, "b": -3}


def shared_job(kind: Any, name: str = "rules", **more: Any) -> hr.Job:
    def on_rules(self: Any, row: Any, ctx: Any) -> None:
        getattr(self, name)[row.v] = kind(row.v) if isinstance(kind, type) else row.v

    def on_rows(self: Any, row: Any, ctx: Any) -> Any:
        return (row.k, repr(dict(getattr(self, name))))

    members = {"output": "k string, said string", "on_rules": on_rules, "on_rows": on_rows,
               name: hr.shared_map(int, kind, **more)}  # fmt: skip
    job = hr.Job("process")
    rows = job.read("log:rows", schema=SCHEMA, name="rows", time="at", delay="1h")
    rules = job.read("log:rules", schema=SCHEMA, name="rules")
    fn = type("Sharing", (hr.KeyedProcess,), members)()
    both = hr.connect(by="k", rows=rows, rules=rules.broadcast())
    both.process(fn, name="p").write("collect:", name="out")
    return job


def test_shared_maps_evolve_like_values(harness: Any) -> None:
    test = harness(shared_job("int"), tasks=3)
    test.send("rules", [("x", 1, 1), ("x", 2, 1)])
    test.restart(shared_job("bigint", "limits", was="rules"))
    assert values(test) == [
        "value     p.limits: renamed from rules", "value     p.limits: widened from int to bigint",
    ]  # fmt: skip
    test.send("rows", [(k, 0, 0) for k in "abcdef"])
    assert {s for _, s in said(test)} == {"{1: 1, 2: 2}"}
    with pytest.raises(hr.StateError, match="HR-EVOLVE-001"):
        test.restart(shared_job("string", "limits"))
    with pytest.raises(hr.StateError, match=r"p\.limits"):
        test.restart(shared_job("bigint", "others"))


# A crash leaves files open, and the interpreter says so when it collects them.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("point", ["run.added", "run.written", "run.synced", "run.durable"])
def test_a_crash_while_the_state_is_rewritten_leaves_the_old(harness: Any, point: str) -> None:
    def hook(name: str) -> None:
        if name == point:
            raise RuntimeError(name)

    test = begun(harness, keeping(a=hr.value("int"), fill=lambda s, v: setattr(s, "a", v)))
    changed = job_of(keeping(b=hr.value(int, was="a")))
    with faults.hooked(hook), pytest.raises(RuntimeError, match=point):
        test.restart(changed)
    test.restart()
    assert told(test) == {"a": 3}
    test.restart(changed)
    assert told(test) == {"b": 3} and told(test, "b") == {"b": 4}
