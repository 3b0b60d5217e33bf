"""The catalogue of functions: name, what it takes and gives, and its SQL in each engine.

Invariant: a function is here only if `tests/expr/test_agreement.py` shows that its two
lowerings give the same values. The tables themselves are in `fn_*`; this module says how
a row of them is written and finds functions by name.

A signature such as "text int int? -> text" lists kinds: `int` and `long` take any integer and
widen it, `double` any number, `number` any number as it is, `T` and `[T]` agree with each
other, `word` is a literal; `?` may be left out, `*` repeats. A result `1` has the type of the
first argument; `0` has the type that it had before it agreed with the others, and the template
gets it, as it was, as one argument more. A template has {0}, {1} ... for the arguments; a
function of the arguments makes what a template cannot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.types import Term
from headrace.hints import aggregate, nearest

Template = str | Callable[[Sequence[Term]], str]
Gives = str | Callable[[Sequence[Term]], pa.DataType]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    takes: tuple[str, ...]
    gives: Gives
    duckdb: Template
    spark: Template
    group: str
    may_fail: bool = False  # on a row
    lambdas: Callable[..., Term] | None = None  # how a function that takes some is lowered

    @property
    def least(self) -> int:
        return sum(not k.endswith(("?", "*")) for k in self.takes)

    @property
    def most(self) -> int | None:
        return None if self.takes and self.takes[-1].endswith("*") else len(self.takes)

    def kind(self, position: int) -> str:
        return self.takes[min(position, len(self.takes) - 1)].rstrip("?*")

    def sql(self, dialect: str, args: Sequence[Term]) -> str:
        template = self.duckdb if dialect == "duckdb" else self.spark
        return template(args) if callable(template) else template.format(*(a.sql for a in args))


CATALOGUE: dict[str, Function] = {}


def offer(
    group: str,
    name: str,
    signature: str,
    duckdb: Template,
    spark: Template | None = None,
    gives: Gives | None = None,
    *,
    may_fail: bool = False,
) -> None:
    """Put a function into the catalogue; without `spark` both engines share the template."""
    takes, _, result = signature.partition("->")
    CATALOGUE[name] = Function(
        name=name,
        takes=tuple(takes.split()),
        gives=gives or result.strip(),
        duckdb=duckdb,
        spark=duckdb if spark is None else spark,
        group=group,
        may_fail=may_fail,
    )


def find(name: str) -> Function:
    """The function of that name; HR-EXPR-002 with the nearest names if there is none."""
    if name in CATALOGUE:
        return CATALOGUE[name]
    near = nearest(name, CATALOGUE)
    hint = f"Did you mean {' or '.join(near)}? " if near else ""
    if ours := aggregate(name):
        hint = f"hr.{ours} is an aggregate: use it in agg, over a key or a window. "
    raise PlanError(
        "HR-EXPR-002",
        f"there is no function {name!r}",
        hint + "headrace.functions lists all; a Python function can do the rest.",
    )


def names() -> list[str]:
    return sorted(CATALOGUE)


def listed(template: str, separator: str = ", ") -> Callable[[Sequence[Term]], str]:
    """A template whose {} is all arguments: for functions of any number of them."""
    return lambda args: template.format(separator.join(a.sql for a in args))
