"""The walk over an expression, and its casts: what the rule of each node works with.

`lower` lists one rule per type of node; a rule lowers the parts of its node by `term`, brings
them to one type by `same` or `unified`, and returns a `Term`. Nothing here knows a rule.

Invariant of explicit casts: one gives the same value in DuckDB as in Spark, or fails
(`try_cast`: is null) in both, or is refused when the program is built. Text is read by one strict
grammar, checked by the same pattern on either side; a fraction is cut off toward zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import types as pt

from headrace.expr import text_grammar
from headrace.expr.tree import Node, refused
from headrace.expr.types import (
    UNREAD,
    Term,
    cast,
    common,
    is_int,
    quote,
    type_name,
    type_text,
)
from headrace.schema import TIMESTAMP

ColumnNames = Callable[[str], str]
Rule = Callable[[Any, Node], Term]  # of a walk and a node


class Walk(ABC):
    """The walk over one schema; `column` gives the name of a column in SQL."""

    rules: ClassVar[Mapping[type[Node], Rule]]

    def __init__(self, schema: pa.Schema, column: ColumnNames = quote) -> None:
        self.schema = schema
        self.column = column
        self.scope: dict[str, Term] = {}  # the variables of the enclosing lambdas
        self.depth = 0  # how many lambdas enclose this place
        self.risks = 0  # how much has been lowered so far that may fail on a row

    def term(self, node: Node) -> Term:
        term = self.rules[type(node)](self, node)
        return self.cast(term, pa.float64()) if term.type == pa.float32() else term

    def same(self, nodes: Sequence[Node], where: Node) -> list[Term]:
        """The nodes in their common type."""
        return self.unified([self.term(n) for n in nodes], where)

    def unified(self, terms: Sequence[Term], where: Node) -> list[Term]:
        times = [t.type for t in terms if pt.is_temporal(t.type)]
        if times:
            terms = [self.as_time(t, times[0], where) for t in terms]
        common_type = common(t.type for t in terms)
        if common_type is None:
            kinds = " and ".join(dict.fromkeys(type_text(t.type) for t in terms))
            raise refused(where, f"{kinds} do not go together", "Use cast to make them one type.")
        return [self.widened(t, common_type) for t in terms]

    def widened(self, term: Term, to: pa.DataType) -> Term:
        return term if pt.is_null(to) else self.cast(term, to)

    def cast(self, term: Term, to: pa.DataType) -> Term:
        return cast(term, to)

    def as_time(self, term: Term, to: pa.DataType, where: Node) -> Term:
        """A text literal compared with a time is that time: `at > '2024-01-01'`."""
        if not isinstance(term.literal, str):
            return term
        return explicit_cast(self, term, to, where=where)

    @abstractmethod
    def call(self, name: str, args: Sequence[Node | Term], node: Node) -> Term:
        """A call of the function `name`."""


# explicit casts

_HINTS = {
    ("int", "timestamp"): "Use timestamp_millis or timestamp_seconds.",
    ("timestamp", "int"): "Use unix_millis or unix_seconds.",
    (
        "double",
        "text",
    ): "Round it and cast it to a decimal first: engines spell doubles differently.",
}


def explicit_cast(
    walk: Walk, term: Term, to: pa.DataType, *, where: Node, safe: bool = False
) -> Term:
    """`term` as `to`; HR-EXPR-003 for a pair of types on which the engines do not agree."""
    if term.type == to:
        return term
    if pt.is_null(term.type):
        return walk.cast(term, to)
    if isinstance(term.literal, str) and to in (pa.date32(), TIMESTAMP):
        if text_grammar.is_time_word(term.literal):
            raise refused(where, f"{term.literal!r} depends on the clock", "Use a column of times.")
        if not safe:
            return _time_literal(term.literal, to, where)
    pair = (kind_of(term.type), kind_of(to))
    rule = _RULES.get(pair)
    if rule is None or not pair[0]:
        fact = f"{type_text(term.type)} cannot be cast to {type_text(to)}"
        raise refused(where, fact, _HINTS.get(pair, "Cast it in steps, or use a Python function."))
    walk.risks += not safe
    return Term(rule(term, to, "TRY_CAST" if safe else "CAST"), to)


def _time_literal(text: str, to: pa.DataType, where: Node) -> Term:
    name = "DATE" if to == pa.date32() else "TIMESTAMP"
    try:
        return Term(f"{name} '{text_grammar.time_text(text, name)}'", to)
    except ValueError:
        hint = "Write it as in '2024-02-29' or '2024-02-29T12:30:00+01:00'."
        raise refused(where, f"{text!r} is not a {name.lower()}", hint) from None


def kind_of(t: pa.DataType) -> str:
    if is_int(t):
        return "int"
    if pt.is_floating(t):
        return "double"
    if pt.is_decimal128(t):
        return "decimal"
    names = {
        pa.bool_(): "bool",
        pa.string(): "text",
        pa.binary(): "binary",
        pa.date32(): "date",
        TIMESTAMP: "timestamp",
    }
    return names.get(t, "")


def _plain(term: Term, to: pa.DataType, word: str) -> str:
    return f"{word}({term.sql} AS {type_name(to)})"


def _spelt(term: Term, to: pa.DataType, word: str) -> str:
    """A decimal without digits before its point has a zero there: 0.5, not .5."""
    text = _plain(term, to, word)
    if term.type.precision > term.type.scale:
        return text
    return f"regexp_replace({text}, '^(-?)[.]', '\\10.')"


def _cut(term: Term, to: pa.DataType, word: str) -> str:
    """A fraction goes toward zero."""
    return f"{word}(trunc({term.sql}) AS {type_name(to)})"


def _via_text(term: Term, to: pa.DataType, word: str) -> str:
    """By the shortest decimal spelling of the double, as Spark rounds it."""
    return f"{word}(CAST({term.sql} AS VARCHAR) AS {type_name(to)})"


def _exact(term: Term, to: pa.DataType, word: str) -> str:
    double = cast(term, pa.float64())
    return double.sql if to == pa.float64() else _plain(double, to, word)


def read_text(term: Term, to: pa.DataType, word: str) -> str:
    """Text by the grammar of `to`, with blanks around it."""
    kind, x = kind_of(to), term.sql
    match = text_grammar.matches(kind, x)
    value = f"{word}({text_grammar.spelt(kind, x)} AS {type_name(to)})"
    if to == TIMESTAMP:  # only with a zone does DuckDB heed an offset
        value = f"CAST({word}({text_grammar.spelt(kind, x)} AS TIMESTAMPTZ) AS TIMESTAMP)"
    if word == "TRY_CAST":
        return f"(CASE WHEN {match} THEN {value} END)"
    fail = f"CAST(concat('{UNREAD}', {x}) AS {type_name(to)})"
    return f"(CASE WHEN {x} IS NULL THEN NULL WHEN {match} THEN {value} ELSE {fail} END)"


def _encode(term: Term, to: pa.DataType, word: str) -> str:
    return f"encode({term.sql})"


def _decode(term: Term, to: pa.DataType, word: str) -> str:
    return f"TRY(decode({term.sql}))" if word == "TRY_CAST" else f"decode({term.sql})"


_Rule = Callable[[Term, pa.DataType, str], str]
_RULES: dict[tuple[str, str], _Rule] = {
    **{("int", k): _plain for k in ("int", "double", "decimal", "text", "bool")},
    **{("bool", k): _plain for k in ("int", "double", "text")},
    **{("text", k): read_text for k in text_grammar.KINDS},
    ("double", "int"): _cut,
    ("double", "double"): _plain,
    ("double", "decimal"): _via_text,
    ("decimal", "int"): _cut,
    ("decimal", "double"): _exact,
    ("decimal", "decimal"): _plain,
    ("decimal", "text"): _spelt,
    ("text", "binary"): _encode,
    ("binary", "text"): _decode,
    ("date", "timestamp"): _plain,
    ("timestamp", "date"): _plain,
    ("date", "text"): _plain,
    ("timestamp", "text"): _plain,
}
