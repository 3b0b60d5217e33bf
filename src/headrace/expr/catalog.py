"""The catalogue of SQL functions: name, arguments, result, and its SQL in DuckDB.

A function is declared once, where its public Python function is (`*_functions`): a decorator
there carries all that SQL needs to know, and its name in `headrace.functions.__all__` makes it
public. `tests/expr/test_agreement.py` shows on the texts of `hard_cases` that Spark gives the same
values; where Spark calls it by another name, `tests/expr/spark_lowering.py` has a template.

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
from typing import Any, TypeVar

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.types import Term
from headrace.hints import aggregate, nearest

Template = str | Callable[[Sequence[Term]], str]
Returns = str | Callable[[Sequence[Term]], pa.DataType]


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    takes: tuple[str, ...]
    returns: Returns
    sql: Template
    may_fail: bool = False  # on a row
    default: str | int | None = None  # of the last argument, if it is left out
    lambdas: Callable[..., Term] | None = None  # how a function that takes some is lowered

    @property
    def least(self) -> int:
        return sum(not k.endswith(("?", "*")) for k in self.takes)

    @property
    def most(self) -> int | None:
        return None if self.takes and self.takes[-1].endswith("*") else len(self.takes)

    def kind(self, position: int) -> str:
        return self.takes[min(position, len(self.takes) - 1)].rstrip("?*")

    def lowered(self, args: Sequence[Term]) -> str:
        if callable(self.sql):
            return self.sql(args)
        return self.sql.format(*(a.sql for a in args))


CATALOGUE: dict[str, Function] = {}
_ALIASES: dict[str, str] = {}  # other names of functions
_F = TypeVar("_F", bound=Callable[..., Any])


def declare(
    name: str,
    signature: str,
    sql: Template,
    *,
    returns: Returns | None = None,
    aliases: str = "",
    default: str | int | None = None,
    may_fail: bool = False,
    lambdas: Callable[..., Term] | None = None,
) -> None:
    """Put a function into the catalogue; `aliases` are other names that SQL text may use."""
    takes, _, result = signature.partition("->")
    CATALOGUE[name] = Function(
        name=name,
        takes=tuple(takes.split()),
        returns=returns or result.strip(),
        sql=sql,
        may_fail=may_fail,
        default=default,
        lambdas=lambdas,
    )
    _ALIASES.update(dict.fromkeys(aliases.split(), name))


def function(
    signature: str,
    sql: Template,
    *,
    returns: Returns | None = None,
    aliases: str = "",
    default: str | int | None = None,
    may_fail: bool = False,
) -> Callable[[_F], _F]:
    """Declare the SQL function that a public Python function calls: it has the same name, and
    its documentation."""

    def decorate(public: _F) -> _F:
        name = public.__name__
        declare(
            name,
            signature,
            sql,
            returns=returns,
            aliases=aliases,
            default=default,
            may_fail=may_fail,
        )
        return public

    return decorate


def lambda_function(
    signature: str, lower: Callable[..., Term], *, aliases: str = ""
) -> Callable[[_F], _F]:
    """As `function`, for one that takes lambdas and is lowered, with its type, by `lower`."""

    def decorate(public: _F) -> _F:
        declare(public.__name__, signature, "", aliases=aliases, lambdas=lower)
        return public

    return decorate


def canonical_name(name: str) -> str:
    """The one name of a function, in lower case."""
    return _ALIASES.get(name.lower(), name.lower())


def default_argument(name: str, count: int) -> str | int | None:
    """What the argument after `count` is, if it may be left out and has a value then."""
    fn = CATALOGUE.get(name)
    return fn.default if fn is not None and count == len(fn.takes) - 1 else None


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
