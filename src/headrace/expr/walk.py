"""The walk over an expression: what the rule of each node works with.

`lower` lists one rule per type of node; a rule lowers the parts of its node by `term`, brings
them to one type by `same` or `unified`, and returns a `Term`. Nothing here knows a rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow as pa
from pyarrow import types as pt

from headrace.expr.tree import Node, refused
from headrace.expr.types import Term, cast, common, quote, spoken

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
        made = self.rules[type(node)](self, node)
        return self.cast(made, pa.float64()) if made.type == pa.float32() else made

    def same(self, nodes: Sequence[Node], where: Node) -> list[Term]:
        """The nodes in their common type."""
        return self.unified([self.term(n) for n in nodes], where)

    def unified(self, terms: Sequence[Term], where: Node) -> list[Term]:
        times = [t.type for t in terms if pt.is_temporal(t.type)]
        if times:
            terms = [self.as_time(t, times[0], where) for t in terms]
        together = common(t.type for t in terms)
        if together is None:
            kinds = " and ".join(dict.fromkeys(spoken(t.type) for t in terms))
            raise refused(where, f"{kinds} do not go together", "Use cast to make them one type.")
        return [self.widened(t, together) for t in terms]

    def widened(self, term: Term, to: pa.DataType) -> Term:
        return term if pt.is_null(to) else self.cast(term, to)

    def cast(self, term: Term, to: pa.DataType) -> Term:
        return cast(term, to)

    @abstractmethod
    def as_time(self, term: Term, to: pa.DataType, where: Node) -> Term:
        """A text literal beside a time is that time: `at > '2024-01-01'`."""

    @abstractmethod
    def call(self, name: str, args: Sequence[Node | Term], node: Node) -> Term:
        """A call of the function `name`."""
