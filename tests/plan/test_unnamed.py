"""Steps without a name of their own: told apart by what they read from, or refused."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.plan.evolution import Comparison, compare, describe
from headrace.plan.program import Program
from headrace.plan.shapes import digest

ROW = "k string, origin string, x bigint"
Build = Callable[[hr.Stream], Any]


def program(*builds: Build) -> Program:
    job = hr.Job("j")
    stream = job.read("log:flights", schema=ROW)
    for number, build in enumerate(builds):
        build(stream).write("console:", name=f"out {number}")
    return job.program()


def versus(before: tuple[Build, ...], after: tuple[Build, ...]) -> Comparison:
    return compare(program(*after), describe(program(*before)))


def refused(comparison: Comparison) -> list[str]:
    return [c.code for c in comparison.of("refused")]


def counted(condition: str, **named: str) -> Build:
    return lambda s: s.where(condition).key_by("k").agg(n=hr.count(), unbounded=True, **named)


def only(origin: str) -> Callable[[Any], bool]:
    return lambda row: bool(row.origin == origin)


def is_jfk(row: Any) -> bool:
    return bool(row.origin == "JFK")


def filtered(fn: Callable[[Any], bool], **named: str) -> Build:
    def build(s: hr.Stream) -> Any:
        return (
            s.map(lambda row: row, schema=ROW)
            .filter(fn)
            .key_by("k")
            .agg(n=hr.count(), unbounded=True, **named)
        )

    return build


def folded(fn: Callable[[Any, Any], Any], **named: str) -> Build:
    return lambda s: s.key_by("k").fold(0, fn, unbounded=True, **named)


JFK, EWR = counted("origin = 'JFK'"), counted("origin = 'EWR'")


def test_one_that_is_put_before_another_does_not_get_its_state() -> None:
    comparison = versus((JFK,), (EWR, JFK))
    (change,) = comparison.of("refused")
    assert change.code == "HR-EVOLVE-005" and change.name == "flights.agg"
    assert "where origin = 'EWR'" in change.because and "where origin = 'JFK'" in change.because
    assert versus((JFK,), (JFK, EWR)).of("refused") == ()


def test_names_tell_them_apart_as_the_hint_says() -> None:
    named = versus((JFK,), (counted("origin = 'EWR'", name="ewr"),
                            counted("origin = 'JFK'", name="flights.agg")))  # fmt: skip
    assert [c.verdict for c in named.changes if c.role == "operator"] == ["new", "same"]
    moved = versus((JFK,), (counted("origin = 'EWR'", name="ewr"),
                            counted("origin = 'JFK'", name="jfk", was="flights.agg")))  # fmt: skip
    assert moved.moves() == {"jfk": "flights.agg"}


def test_a_condition_over_a_column_is_what_the_column_is_made_of() -> None:
    said = lambda s: s.with_columns(a="upper(origin)").where("a = 'JFK'")  # noqa: E731
    direct = lambda s: s.where("upper(origin) = 'JFK'")  # noqa: E731
    agg = lambda s: s.key_by("k").agg(n=hr.count(), unbounded=True)  # noqa: E731
    assert not refused(versus((lambda s: agg(said(s)),), (lambda s: agg(direct(s)),)))


CHANGED: dict[str, tuple[tuple[Build, ...], tuple[Build, ...]]] = {
    "put before": ((filtered(only("JFK")),), (filtered(only("EWR")), filtered(only("JFK")))),
    "taken out": ((filtered(only("JFK")), filtered(only("EWR"))), (filtered(only("EWR")),)),
    "exchanged": ((filtered(only("JFK")), filtered(only("EWR"))),
                  (filtered(only("EWR")), filtered(only("JFK")))),
    "another function by name": ((filtered(is_jfk),), (filtered(only("JFK")),)),
    "own functions exchanged": ((folded(lambda a, r: a + 1), folded(lambda a, r: a + r.x)),
                                (folded(lambda a, r: a + r.x), folded(lambda a, r: a + 1))),
    "one of two that are alike": ((JFK, JFK), (JFK,)),
    "one more that is alike": ((JFK,), (JFK, JFK)),
}  # fmt: skip


@pytest.mark.parametrize("change", CHANGED)
def test_what_only_functions_tell_apart_is_refused_when_it_changes(change: str) -> None:
    assert set(refused(versus(*CHANGED[change]))) == {"HR-EVOLVE-005"}


SAME: dict[str, tuple[tuple[Build, ...], tuple[Build, ...]]] = {
    "the same program": (
        (filtered(only("JFK")), filtered(only("EWR"))),
        (filtered(only("JFK")), filtered(only("EWR"))),
    ),
    "put after": ((filtered(only("JFK")),), (filtered(only("JFK")), filtered(only("EWR")))),
    "the function of the only one": (
        (folded(lambda a, r: a + 1),), (folded(lambda a, r: a + r.x),),
    ),
    "two with names": (
        (filtered(only("JFK"), name="a"), filtered(only("EWR"), name="b")),
        (filtered(only("EWR"), name="b"), filtered(only("LGA"), name="a")),
    ),
}  # fmt: skip


@pytest.mark.parametrize("change", SAME)
def test_what_is_told_apart_goes_on(change: str) -> None:
    assert not refused(versus(*SAME[change]))


@pytest.mark.parametrize(
    "build",
    [
        lambda s: s.transform(lambda rows: rows),
        lambda s: s.key_by("k").transform(lambda rows: rows),
        lambda s: s.lookup(pa.table({"k": ["a"], "z": [1]}), on="k"),
    ],
    ids=["transform", "transform by key", "lookup"],
)
def test_a_step_that_stores_nothing_goes_on_and_may_go(build: Build) -> None:
    changes = versus((build,), (build,)).changes
    assert [c for c in changes if c.role == "operator"] == []
    assert not versus((build,), (lambda s: s.select("k"),)).of("dropped")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (lambda s: s.sample(0.5, seed=1), lambda s: s.sample(0.5, seed=2)),
        (
            lambda s: s.with_columns(z="array(x)").explode("z"),
            lambda s: s.with_columns(z="array(x, x)").explode("z"),
        ),
    ],
    ids=["sample", "explode"],
)
def test_what_decides_which_rows_come_tells_steps_apart(before: Build, after: Build) -> None:
    def step(rows: Build) -> Build:
        return lambda s: rows(s).key_by("k").agg(n=hr.count(), unbounded=True)

    assert refused(versus((step(before),), (step(after),))) == ["HR-EVOLVE-005"]


def test_a_digest_tells_what_a_function_closes_over() -> None:
    assert digest(only("JFK")) == digest(only("JFK")) != digest(only("EWR"))
    assert digest(functools.partial(max, 1)) != digest(functools.partial(max, 2))
    assert digest(is_jfk) != digest(only("JFK"))


class _Process(hr.KeyedProcess):
    output = "n bigint"
    n = hr.value(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        return (1,)


def test_a_digest_of_a_process_function_is_of_its_class() -> None:
    other = type("_Process", (_Process,), {"on_row": lambda self, row, ctx: (2,)})
    assert digest(_Process) != digest(other)


def test_unions_of_the_same_rows_do_not_grow_without_end() -> None:
    def deep(s: hr.Stream) -> Any:
        for number in range(40):
            s = s.union(s.where(f"x > {number}"))
        return s.key_by("k").agg(t=hr.sum("x"), unbounded=True)

    assert not refused(versus((deep,), (deep,)))
