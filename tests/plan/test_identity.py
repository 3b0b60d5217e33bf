"""Every step of the API: what identifies its state, and what may change under it.

Each public method that adds a step is in `identities.py`, or known to be without state; a new
one fails until it is. An identifying change must be refused, a free one must not; and wherever
the tables of an operator would look different, the comparison must have refused, because the
run would.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.plan.identities import (
    ALSO,
    CASES,
    CLASSES,
    FUNCTIONS,
    ROW,
    TEN,
    UNKEYED,
    WITHOUT_STATE,
    Build,
    S,
    Timed,
    keyed,
    program,
)  # fmt: skip

import headrace as hr
from headrace.ops.process.operator import ProcessSpec
from headrace.plan.evolution import compare, describe


def compared(before: Build, after: Build) -> Any:
    return compare(program(after), describe(program(before)))


def verdict(comparison: Any, name: str = "s") -> str:
    (found,) = [c for c in comparison.changes if c.role == "operator" and c.name == name]
    return found.verdict


def every(part: str) -> list[Any]:
    return [
        pytest.param(case.before, build, id=f"{name}: {what}")
        for name, case in CASES.items() for what, build in getattr(case, part).items()
    ]  # fmt: skip


def test_every_public_step_has_an_entry() -> None:
    known = {name.split()[0].rpartition(".")[2] for name in CASES} | WITHOUT_STATE | UNKEYED
    methods = {
        f"{kind.__name__}.{name}" for kind in CLASSES for name in dir(kind) if name[0] != "_"
    }
    missing = {m for m in methods if m.partition(".")[2] not in known | {"side", "late_of"}}
    assert not missing, "say what identifies the state of these steps, or that they have none"
    assert all(name in CASES or name in ALSO for name in FUNCTIONS)


@pytest.mark.parametrize(("before", "after"), every("identifying"))
def test_what_identifies_a_step_is_refused_when_it_changes(before: Build, after: Build) -> None:
    assert compared(before, after).of("refused")


@pytest.mark.parametrize(("before", "after"), every("free"))
def test_what_is_free_keeps_the_state(before: Build, after: Build) -> None:
    assert verdict(compared(before, after)) == "same"


@pytest.mark.parametrize("name", CASES)
def test_the_same_program_is_the_same(name: str) -> None:
    assert verdict(compared(CASES[name].before, CASES[name].before)) == "same"


@pytest.mark.parametrize(("before", "after"), [*every("identifying"), *every("free")])
def test_tables_that_look_different_are_refused_before_a_run_would(
    before: Build, after: Build
) -> None:
    old, new = (program(build) for build in (before, after))
    if isinstance(new.nodes["s"].what, ProcessSpec):  # type: ignore[attr-defined]
        return  # its values are migrated
    tables = [{t.name: t for t in p.nodes["s"].operator().tables()} for p in (old, new)]  # type: ignore[attr-defined]
    if tables[0] != tables[1]:
        assert verdict(compare(new, describe(old))) == "refused"


TIMED = [n for n in CASES if n.split()[0] not in (
    "KeyedStream.agg", "KeyedStream.reduce", "KeyedStream.fold", "KeyedStream.process",
    "Stream.process", "KeyedStream.map_with_state", "KeyedStream.flat_map_with_state",
    "KeyedStream.update_state_by_key", "ConnectedStreams.process")
    and n != "edges spanner"]  # fmt: skip


@pytest.mark.parametrize("name", TIMED)
def test_another_column_of_event_time_is_refused_where_times_are_stored(name: str) -> None:
    build = CASES[name].before
    comparison = compare(program(build, time="made"), describe(program(build)))
    (*_, refused) = comparison.of("refused")  # the step, or the windows that it is after
    assert refused.because.endswith("was at and is made")


@pytest.mark.parametrize("aggregate", [hr.first("x"), hr.last("x"), hr.collect("x")])
def test_event_time_may_neither_come_nor_go_where_it_says_which_row_is_earlier(
    aggregate: Any,
) -> None:
    build = keyed(lambda s: s.agg(v=aggregate, **S))
    timed, untimed = program(build), program(build, time=None)

    assert verdict(compare(timed, describe(timed))) == "same"
    assert verdict(compare(untimed, describe(untimed))) == "same"
    (gone,) = compare(untimed, describe(timed)).of("refused")
    assert gone.because == "the event time of rows of 'l' was at and is none"
    assert verdict(compare(timed, describe(untimed))) == "refused"


def test_event_time_may_come_where_none_is_stored() -> None:
    build = CASES["KeyedStream.agg"].before
    assert verdict(compare(program(build), describe(program(build, time=None)))) == "same"
    timed = keyed(lambda s: s.process(Timed(), **S))
    assert verdict(compare(program(timed, time="made"), describe(program(timed)))) == "refused"


STORING = ["KeyedStream.reduce", "WindowedStream.process", "top", "batch", "KeyedStream.match",
           "iterate", "join"]  # fmt: skip


def filled(build: Build, column: str) -> Any:
    """The program over an input that has no null in the column."""
    rows = {"schema": ROW.replace(f"{column} bigint", f"{column} bigint not null")}
    return program(build, **rows)


@pytest.mark.parametrize("name", STORING)
def test_a_column_of_stored_rows_may_not_become_not_null(name: str) -> None:
    build = CASES[name].before
    refused = compare(filled(build, "y"), describe(program(build))).of("refused")
    assert "the column 'y' may be null in what is stored, and not now" in refused[0].because


@pytest.mark.parametrize("name", [n for n in STORING if n != "join"])
def test_a_column_of_stored_rows_may_become_nullable(name: str) -> None:
    build = CASES[name].before
    assert verdict(compare(program(build), describe(filled(build, "y")))) == "same"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            lambda s: s.agg(a=hr.sum("x"), b=hr.sum("y"), **S),
            lambda s: s.agg(b=hr.sum("y"), a=hr.sum("x"), **S),
        ),
        (
            lambda s: s.window(TEN).agg(a=hr.sum("x"), b=hr.sum("y"), name="s"),
            lambda s: s.window(TEN).agg(b=hr.sum("y"), a=hr.sum("x"), name="s"),
        ),
    ],
)
def test_aggregates_in_another_order_are_the_same(before: Any, after: Any) -> None:
    (same,) = compared(keyed(before), keyed(after)).of("same")
    assert same.name == "s"
