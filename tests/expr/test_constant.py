"""Conditions that no row can fulfil are found; none that a row can fulfil is taken for one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.expr import lit, parsed
from headrace.kernel import never_true, value_of

NEVER = [
    "false", "null", "1 = 2", "1 = null", "not true", "upper('a') = 'b'", "1 / 0 > 1",
    "case when 1 = 2 then true end", "false as named", "v > 1 and false",
    "1 = 2 or v > 1 and v < 0", "v <=> 1 and v = 2", "v between 1 and -2", "v > 1.5 and v <= 1.5",
    "-1 < v and v < -2",
]  # fmt: skip
SOMETIMES = [
    "true", "1 = 1", "v", "v > 1", "v > 1 and w < 0", "1 = 2 or v is null", "v >= 1.5 and v <= 1.5",
    "not (v > 1 and v < 0)", "v > 1 and 2 > 1", "(v > 1) is null and v is null",
    # numbers that are one number in a double, and two in a bigint
    "v >= 9007199254740992 and v < 9007199254740993",
    # texts may stand for numbers and times, whose order is another
    "v > '9' and v < '10'",
]  # fmt: skip
NO_CONDITIONS = ["0", "1 + 1", "'false'", "cast('a' as int) = 1", "unknown(1)"]


@pytest.mark.parametrize("text", NEVER)
def test_what_never_holds_is_found(text: str) -> None:
    assert never_true(parsed(text))


@pytest.mark.parametrize("text", [*SOMETIMES, *NO_CONDITIONS])
def test_what_may_hold_or_is_wrong_is_left_alone(text: str) -> None:
    assert not never_true(parsed(text))


@given(st.floats())
def test_a_double_is_itself_to_the_last_bit_and_its_sign(number: float) -> None:
    assert repr(value_of(lit(number))) == repr(number)
    assert repr(value_of(lit(number) + lit(-0.0))) == repr(number)


def test_a_value_is_calculated() -> None:
    assert value_of(lit(3) - 3) == 0


numbers = st.integers(-2, 2)
signs = st.sampled_from(["<", "<=", ">", ">=", "="])
columns = st.sampled_from(["v", "w"])


def comparisons(columns: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("{} {} {}".format, columns, signs, numbers),
        st.builds("{2} {1} {0}".format, columns, signs, numbers),
        st.builds("{} between {} and {}".format, columns, numbers, numbers),
    )


both = st.sampled_from(["({} and {})", "({} or {})"])
trees = st.recursive(
    comparisons(columns) | st.sampled_from(["1 = 2", "true", "cast(null as boolean)"]),
    lambda inner: st.builds(lambda how, a, b: how.format(a, b), both, inner, inner),
    max_leaves=6,
)
GRID = "(select unnest(range(-6, 7)) / 2 as {})"  # the numbers, what is between, and beyond


@pytest.fixture(scope="module")
def some_row_fulfils() -> Iterator[Callable[[str], bool]]:
    with duckdb.connect() as db:
        db.execute(f"create table rows as from {GRID.format('v')}, {GRID.format('w')}")
        yield lambda text: bool(db.execute(f"from rows where {text} limit 1").fetchall())


@given(text=st.lists(comparisons(st.just("v")), min_size=1, max_size=4).map(" and ".join))
def test_numbers_that_one_column_cannot_be_are_all_found(
    text: str, some_row_fulfils: Callable[[str], bool]
) -> None:
    assert never_true(parsed(text)) != some_row_fulfils(text)


@given(text=trees)
def test_a_condition_that_a_row_fulfils_is_never_refused(
    text: str, some_row_fulfils: Callable[[str], bool]
) -> None:
    assert not (never_true(parsed(text)) and some_row_fulfils(text))
