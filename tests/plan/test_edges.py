"""Inputs and outputs of a changed program: by description, not by name."""

from __future__ import annotations

from typing import Any

import pytest

import headrace as hr
from headrace.errors import StateError
from headrace.plan.evolution import Comparison, compare
from headrace.plan.program import Program

ORDERS = {"kind": "log", "place": "/logs/orders", "thing": "a1"}
OTHER = {"kind": "log", "place": "/logs/other", "thing": "b2"}
FILES = {"kind": "files", "place": "/data/orders", "thing": ""}
OUT = {"kind": "files", "place": "/out", "format": "parquet", "schema": "x bigint"}


def program(*reads: dict[str, Any], **writes: Any) -> Program:
    job = hr.Job("j")
    for number, read in enumerate(reads):
        stream = job.read("log:orders", schema="x bigint", **read)
        stream.write("console:", name=f"out {number}")
    for name, more in writes.items():
        job.read("log:fixed", schema="x bigint", name=f"of {name}").write(
            f"files:out/{name}", **{"name": name, **more}
        )
    return job.program()


def inputs(known: dict[str, Any], now: dict[str, Any], *reads: dict[str, Any]) -> Comparison:
    return compare(program(*reads), {}, known, [f"out {i}" for i in range(len(reads))], reads=now)


def outputs(known: dict[str, Any], now: dict[str, Any], **writes: Any) -> Comparison:
    made = program(**writes)
    return compare(made, {}, [r.name for r in made.sources()], known, writes=now)


def error(comparison: Comparison, **how: Any) -> StateError:
    with pytest.raises(StateError) as caught:
        comparison.check(**how)
    return caught.value


def test_the_same_input_goes_on_and_a_renamed_one_with_it() -> None:
    inputs({"orders": {"id": "orders", **ORDERS}}, {"orders": ORDERS}, {"name": "orders"}).check()
    known = {"orders": {"id": "orders", **ORDERS}}
    renamed = inputs(known, {"p": ORDERS}, {"name": "p", "was": "orders"})
    assert renamed.moves() == {"p": "orders"}
    renamed.check()


@pytest.mark.parametrize(
    ("now", "says"),
    [
        (OTHER, "it has read log:/logs/orders and now reads log:/logs/other"),
        (FILES, "it has read log:/logs/orders and now reads files:/data/orders"),
        ({**ORDERS, "thing": "c3"}, "is not what it has read: it was 'a1' and is 'c3'"),
    ],
)
def test_another_thing_under_the_name_is_refused(now: dict[str, str], says: str) -> None:
    found = error(inputs({"orders": ORDERS}, {"orders": now}, {"name": "orders"}))
    assert found.code == "HR-EVOLVE-001" and says in found.message
    assert "another name" in str(found.hint) and "drop='orders'" in str(found.hint)


def test_an_input_under_another_name_is_not_read_again_without_consent() -> None:
    comparison = inputs({"orders": ORDERS}, {"p": ORDERS}, {"name": "p"})
    found = error(comparison)
    assert found.code == "HR-EVOLVE-002"
    assert "was='orders'" in str(found.hint) and "drop='orders'" in str(found.hint)
    assert error(comparison, drop=True).code == "HR-EVOLVE-002"  # it must be named
    comparison.check(drop="orders")


def test_an_input_that_is_gone_needs_consent() -> None:
    comparison = inputs({"orders": ORDERS, "x": OTHER}, {"orders": ORDERS}, {"name": "orders"})
    assert "'x', and how far it was read" in error(comparison).message
    comparison.check(drop=["x"])
    comparison.check(drop=True)


def test_a_name_before_that_no_input_had_is_refused() -> None:
    found = error(inputs({"orders": ORDERS}, {"p": ORDERS}, {"name": "p", "was": "order"}))
    assert found.code == "HR-EVOLVE-003"
    assert "was='order'" in found.message and "was='orders'" in str(found.hint)


def test_a_name_before_is_refused_where_both_are_there() -> None:
    known = {"a": ORDERS, "b": ORDERS}
    found = error(inputs(known, {"b": ORDERS}, {"name": "b", "was": "a"}))
    assert found.code == "HR-EVOLVE-003" and "has 'b' as well" in found.message
    inputs({"b": ORDERS}, {"b": ORDERS}, {"name": "b", "was": "a"}).check()  # done before


def test_an_output_that_moves_is_refused_and_a_new_name_begins() -> None:
    for change in ({"place": "/other"}, {"kind": "log"}, {"format": "json"}):
        found = error(outputs({"o": OUT}, {"o": {**OUT, **change}}, o={}))
        assert found.code == "HR-EVOLVE-001" and "files:/out as parquet" in found.message
        assert "another name=" in str(found.hint)
    outputs({"o": OUT}, {"p": {**OUT, "place": "/other"}}, p={}).check()
    outputs({"o": {**OUT, "id": "o", "last": 4}}, {"o": OUT}, o={}).check()
    outputs({"o": OUT}, {"p": OUT}, p={"was": "o"}).check()


def test_outputs_that_exchange_their_names_unsaid_are_refused() -> None:
    other = {**OUT, "place": "/other"}
    assert error(outputs({"a": OUT, "b": other}, {"a": other, "b": OUT}, a={}, b={})).code == (
        "HR-EVOLVE-001"
    )


def test_a_name_before_that_no_output_had_is_refused() -> None:
    assert error(outputs({"o": OUT}, {"p": OUT}, p={"was": "x"})).code == "HR-EVOLVE-003"


def test_what_may_be_dropped_is_a_name_not_a_part_of_one() -> None:
    known = {"orders": ORDERS, "order": OTHER, "here": FILES}
    comparison = inputs(known, {"here": FILES}, {"name": "here"})
    assert "'order'" in error(comparison, drop="orders").message
    comparison.check(drop=("orders", "order"))
    assert error(comparison, drop=["orders", "order", "typo"]).code == "HR-EVOLVE-004"
