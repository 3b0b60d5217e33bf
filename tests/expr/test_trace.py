"""Tracing: which lambdas become expressions, and the reasons why others do not."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from headrace import functions as f
from headrace.errors import PlanError
from headrace.expr import Untraceable, as_expr, col, lit, same
from headrace.expr.trace import trace_row
from headrace.schema import schema_of

SCHEMA = schema_of("t double, n int, area string, ok boolean, home struct<city string, upper int>")
LIMIT = 40
STATE = {"seen": 0}


@dataclass
class Reading:
    area: str
    fahrenheit: float


@dataclass
class Checked:
    area: str

    def __post_init__(self) -> None:
        assert self.area


class Pair(NamedTuple):
    left: Any
    right: Any


def plain(e: Any) -> Any:
    return e.t > 40


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda e: e.t > 1 and e.n > 2, "and, or, not, if"),
        (lambda e: e.t > 1 or e.n > 2, "and, or, not, if"),
        (lambda e: not e.ok, "and, or, not, if"),
        (lambda e: 1 if e.ok else 2, "and, or, not, if"),
        (lambda e: 0 < e.t < 40, "chained comparison"),
        (lambda e: e.n in (1, 2), "isin"),
        (lambda e: "x" in e.area, "contains"),
        (lambda e: len(e.area), "calls len()"),
        (lambda e: int(e.t), "calls int()"),
        (lambda e: str(e.t), "str()"),
        (lambda e: max(e.t, e.n), "calls max()"),
        (lambda e: round(e.t), "calls round()"),
        (lambda e: f"{e.area}!", "f-string"),
        (lambda e: "%s" % e.area, "text"),  # noqa: UP031
        (lambda e: e.area.strip(), ".strip"),
        (lambda e: e.area.encode().hex(), ".encode"),
        (lambda e: [c for c in e.area], "loops"),
        (lambda e: e.area is None, "asks with `is`"),
        (lambda e: 0 if e.area is not None else 1, "asks with `is`"),
        (lambda e: str(e) + "!", "the row as a value"),
        (lambda e: f"{e}", "the row as a value"),
        (lambda e: e == 5, "the row as a value"),
        (lambda e: e and e.t, "the row as a value"),
        (lambda e: "t" in e, "the row as a value"),
        (lambda e: {"y": e.area.upper}["y"], "method"),
        (lambda e: e.area.replace("a", "b", 1), "TypeError"),
        (lambda e: e.area.startswith(("a", "b")), "starts_with takes text"),
        (lambda e: e.n & 1, "not a condition"),
        (lambda e: "abc"[e.n], "position"),
        (lambda e: "ab" * e.n, "string is not a number"),
        (lambda e: time.time() > e.t, "reads 'time'"),
        (lambda e: random.random() < 0.5, "reads 'random'"),
        (lambda e: STATE["seen"] + e.n, "reads 'STATE'"),
        (lambda e: plain(e) & e.ok, "calls plain()"),
        (lambda e: Checked(e.area), "calls Checked()"),
        (lambda e: e.area * 2, "string is not a number"),
        (lambda e: e.ok + 1, "boolean is not a number"),
        (lambda e: e.area == 5, "do not go together"),
        (lambda e: (e.t, e.n), "whole row"),
        (lambda e: object, "object"),
        (lambda e, k: e.t, "exactly one row"),
        (lambda *e: e, "exactly one row"),
        (lambda e: (yield e.t), "effects"),
        (lambda e: ord(e.area), "calls ord()"),
        (plain, "not a lambda"),
        (len, "not a lambda"),
    ],
)
def test_what_needs_values_is_not_traced_and_says_why(function, reason):
    with pytest.raises(Untraceable) as caught:
        as_expr(function, SCHEMA)
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda e: e.t > LIMIT, "t > 40"),
        (lambda e: f.upper(e.area), "upper(area)"),
        (lambda e: f.when(e.t > 40, "hot").otherwise("ok"),
         "case when t > 40 then 'hot' else 'ok' end"),
        (lambda e: col("t") + e.n, "t + n"),
        (lambda e: e.home.city, "home.city"),
        (lambda e: e.home["upper"], "home.upper"),
        (lambda e: e[0] + e[1], "t + n"),
        (lambda e: (x := e.n) * x, "n * n"),
        (lambda e: 1.5, "1.5"),
    ],
)  # fmt: skip
def test_what_is_the_same_for_every_row_is_traced(function, text):
    assert same(as_expr(function, SCHEMA), as_expr(text, SCHEMA))


def test_a_closed_over_constant_is_taken_as_it_is_now():
    limit = 7
    assert same(as_expr(lambda e: e.n > limit, SCHEMA), col("n") > 7)


@pytest.mark.parametrize("function", [lambda e: e.tt, lambda e: e["tt"], lambda e: e._replace(x=1)])
def test_an_unknown_column_is_a_mistake_not_a_reason(function):
    with pytest.raises(PlanError) as caught:
        trace_row(function, SCHEMA)
    assert caught.value.code == "HR-EXPR-001"


@pytest.mark.parametrize(
    "function", [lambda e: e.t > "40", lambda e: e.area - 1, lambda e: -e.area]
)
def test_types_that_python_refuses_too_are_a_mistake(function):
    with pytest.raises(PlanError) as caught:
        as_expr(function, SCHEMA)
    assert caught.value.code == "HR-EXPR-003"


def names_and_trees(function: Any) -> dict[str, Any]:
    return {name: expr.sql() for name, expr in trace_row(function, SCHEMA).items()}


def test_a_row_may_be_a_dict_the_row_itself_a_dataclass_or_one_value():
    assert names_and_trees(lambda e: {"a": e.n + 1, "b": 2}) == {"a": "`n` + 1", "b": "2"}
    assert list(names_and_trees(lambda e: e)) == SCHEMA.names
    assert names_and_trees(lambda e: e._replace(t=e.t + 1))["t"] == "`t` + 1"
    assert names_and_trees(lambda e: {**e, "x": e.n})["x"] == "`n`"
    assert names_and_trees(lambda e: e._asdict() | {"n": 0})["n"] == "0"
    assert names_and_trees(lambda e: Reading(e.area, e.t * 1.8 + 32)) == {
        "area": "`area`", "fahrenheit": "(`t` * 1.8) + 32",
    }  # fmt: skip
    assert names_and_trees(lambda e: Pair(e.n, 1)) == {"left": "`n`", "right": "1"}
    assert names_and_trees(lambda e: e.t) == {"t": "`t`"}
    assert names_and_trees(lambda e: e.t * 2) == {"value": "`t` * 2"}
    assert names_and_trees(lambda e: 5) == {"value": "5"}


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda e: {1: e.t}, "keys"),
        (lambda e: {}, "without columns"),
        (lambda e: [e.t], "list"),
        (lambda e: {"a": object}, "object"),
        (lambda e: {"a": e.t, "b": e.area.title()}, ".title"),
    ],
)
def test_a_row_that_no_columns_can_hold_is_not_traced(function, reason):
    with pytest.raises(Untraceable) as caught:
        trace_row(function, SCHEMA)
    assert reason in caught.value.reason


def test_text_of_an_expression_is_there_again_after_tracing():
    with pytest.raises(Untraceable):
        as_expr(lambda e: f"{e.t}", SCHEMA)
    assert str(lit(1)) == "1"
