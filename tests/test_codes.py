"""The table of error codes is what the source raises, and every code can be read there."""

# ruff: noqa: RUF001  (angle quotes mark the fields of a message)

from __future__ import annotations

import pytest
from tools import codes

SOME = '''
from headrace.errors import PlanError, refusal


class Odd(PlanError):
    """A kind of its own."""


def check(name, count):
    hint = "Give another."
    if count:
        raise refusal("HR-SOME-001", f"{name!r} is there {len(count)} times", hint)
    raise Odd("HR-SOME-002" if name else "HR-SOME-003", "nothing " + "at all", f"Use {name}.")


def rows(value):
    _above_zero("HR-SOME-004", "size", value)


def _above_zero(code, what, value):
    raise refusal(code, f"{what} is {value!r}", "Choose one above zero.")
'''
REFUSAL = """
class HeadraceError(Exception):
    pass


class PlanError(HeadraceError):
    pass


def refusal(code, fact, hint):
    return PlanError(code, fact, hint)
"""


@pytest.fixture(scope="module")
def source() -> codes.Source:
    return codes.source()


def test_the_page_is_current(source: codes.Source) -> None:
    page = codes.page(source.causes())
    current = codes.PAGE.read_text(encoding="utf-8") == page
    assert current, "docs/codes.md is out of date: `make docs` or `python -m tools.codes` writes it"


def test_every_code_of_the_source_is_on_the_page(source: codes.Source) -> None:
    on_page = set(codes.CODE.findall(codes.page(source.causes())))
    assert source.mentioned - on_page == set(), "add what is reported to tools.codes.ELSEWHERE"


def test_every_code_is_a_literal_where_its_error_is_built(source: codes.Source) -> None:
    source.causes()
    assert source.dynamic == [], "write the code as a literal, or add it to tools.codes.DYNAMIC"


def test_causes_are_read_from_the_source() -> None:
    found = codes.Source({"errors.py": REFUSAL, "some.py": SOME})
    assert found.causes() == [
        codes.Cause("HR-SOME-001", "'‹name›' is there ‹number› times", "Give another."),
        codes.Cause("HR-SOME-002", "nothing at all", "Use ‹name›."),
        codes.Cause("HR-SOME-003", "nothing at all", "Use ‹name›."),
        codes.Cause("HR-SOME-004", "size is '‹value›'", "Choose one above zero."),
    ]
    assert found.dynamic == []


def test_a_code_that_is_put_together_is_found() -> None:
    odd = "raise refusal(f'HR-SOME-{n:03}', 'a fact', 'Do it.')\n"
    found = codes.Source({"errors.py": REFUSAL, "odd.py": odd})
    found.causes()
    assert found.dynamic == ["odd.py:1: f'HR-SOME-{n:03}'"]


def test_several_causes_of_a_code_are_numbered_with_their_remedies() -> None:
    causes = [codes.Cause("HR-SOME-001", "a|b", "Do a."), codes.Cause("HR-SOME-001", "c", "Do c.")]
    assert "| `HR-SOME-001` | 1. a\\|b<br>2. c | 1. Do a.<br>2. Do c. |\n" in codes.page(causes)
