"""Operators of an expression: they mean what they mean in Python.

So `%` and `//` round downwards, `/` gives a double, `+` joins texts, and `== None` asks for
null. SQL text has SQL's own meaning of `%` (the sign of the left side) and of `= null`.

Invariant: an expression never silently takes the place of a value. Where Python asks for one (its
truth, its length, its text), the answer is `Untraceable` with a reason for people, so that a
lambda that is being traced runs as Python instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any, Generic, NoReturn, TypeVar

from sqlglot import exp

from headrace.errors import PlanError, call_site
from headrace.expr.tree import Node

E = TypeVar("E")  # Expr, which is made of these operators


class ColumnOperators(Generic[E]):
    """Arithmetic, comparison and logic; `Expr` says how a node is made."""

    __slots__ = ()

    def _infix(self, kind: type[Node], left: Any, right: Any) -> E:
        raise NotImplementedError

    def _prefix(self, kind: type[Node]) -> E:
        raise NotImplementedError

    def _function(self, name: str, *args: Any) -> E:
        raise NotImplementedError

    def is_null(self) -> E:
        raise NotImplementedError

    def is_not_null(self) -> E:
        raise NotImplementedError

    def __hash__(self) -> int:
        raise NotImplementedError

    def as_expr(self) -> E:
        """What it is in an expression, if it is not one itself."""
        raise NotImplementedError

    # arithmetic: operators mean what they mean in Python

    def __add__(self, other: Any) -> E:
        return self._infix(exp.Add, self, other)

    def __radd__(self, other: Any) -> E:
        return self._infix(exp.Add, other, self)

    def __sub__(self, other: Any) -> E:
        return self._infix(exp.Sub, self, other)

    def __rsub__(self, other: Any) -> E:
        return self._infix(exp.Sub, other, self)

    def __mul__(self, other: Any) -> E:
        return self._infix(exp.Mul, self, other)

    def __rmul__(self, other: Any) -> E:
        return self._infix(exp.Mul, other, self)

    def __truediv__(self, other: Any) -> E:
        return self._infix(exp.Div, self, other)

    def __rtruediv__(self, other: Any) -> E:
        return self._infix(exp.Div, other, self)

    def __floordiv__(self, other: Any) -> E:
        return self._function("floor_div", self, other)

    def __rfloordiv__(self, other: Any) -> E:
        return self._function("floor_div", other, self)

    def __mod__(self, other: Any) -> E:
        return self._function("floor_mod", self, other)

    def __rmod__(self, other: Any) -> E:
        return self._function("floor_mod", other, self)

    def __pow__(self, other: Any) -> E:
        return self._function("pow", self, other)

    def __rpow__(self, other: Any) -> E:
        return self._function("pow", other, self)

    def __neg__(self) -> E:
        return self._prefix(exp.Neg)

    def __abs__(self) -> E:
        return self._function("abs", self)

    # comparison and logic

    def __eq__(self, other: Any) -> E:  # type: ignore[override]
        return self.is_null() if other is None else self._infix(exp.EQ, self, other)

    def __ne__(self, other: Any) -> E:  # type: ignore[override]
        return self.is_not_null() if other is None else self._infix(exp.NEQ, self, other)

    def __lt__(self, other: Any) -> E:
        return self._infix(exp.LT, self, other)

    def __le__(self, other: Any) -> E:
        return self._infix(exp.LTE, self, other)

    def __gt__(self, other: Any) -> E:
        return self._infix(exp.GT, self, other)

    def __ge__(self, other: Any) -> E:
        return self._infix(exp.GTE, self, other)

    def __and__(self, other: Any) -> E:
        return self._infix(exp.And, self, other)

    def __rand__(self, other: Any) -> E:
        return self._infix(exp.And, other, self)

    def __or__(self, other: Any) -> E:
        return self._infix(exp.Or, self, other)

    def __ror__(self, other: Any) -> E:
        return self._infix(exp.Or, other, self)

    def __invert__(self) -> E:
        return self._prefix(exp.Not)

    # bits: & | ~ are logic on columns, so these have names

    def bitwise_and(self, other: Any) -> E:
        """The bits that are set in both whole numbers."""
        return self._infix(exp.BitwiseAnd, self, other)

    def bitwise_or(self, other: Any) -> E:
        """The bits that are set in one of the whole numbers, or in both."""
        return self._infix(exp.BitwiseOr, self, other)

    def bitwise_xor(self, other: Any) -> E:
        """The bits that are set in exactly one of the whole numbers."""
        return self._infix(exp.BitwiseXor, self, other)

    def bitwise_not(self) -> E:
        """All bits of a whole number the other way round."""
        return self._prefix(exp.BitwiseNot)

    def __lshift__(self, bits: Any) -> E:
        return self._function("shiftleft", self, bits)

    def __rshift__(self, bits: Any) -> E:
        return self._function("shiftright", self, bits)


# what only a value can answer

# While a lambda is traced: the names of the fields of an expression.
TRACING: ContextVar[Callable[[Any], Collection[str]] | None] = ContextVar("tracing", default=None)


class Untraceable(TypeError):
    """Python needs the value of an expression; `reason` says what for, in words for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class ValueNeededError(PlanError, Untraceable):
    """The same outside of a lambda, where the program itself is wrong."""


class NotAValue:
    """The questions of Python that a column cannot answer."""

    __slots__ = ()

    def sql(self) -> str:
        raise NotImplementedError

    def __bool__(self) -> NoReturn:
        if TRACING.get() is None:
            raise ValueNeededError(
                "HR-EXPR-007",
                "a column has no value while the program is written, so Python cannot decide by it",
                "Write & for and, | for or, ~ for not, each side in parentheses; isin([...]) for "
                "in, between(a, b) for a chained comparison; or SQL text.",
                site=call_site(),
            )
        raise Untraceable(
            "it decides by a value: and, or, not, if, in and a chained comparison need one "
            "(use &, |, ~, when, isin and between on columns)"
        )

    def __iter__(self) -> NoReturn:
        raise Untraceable("it loops over a value")

    def __len__(self) -> NoReturn:
        raise Untraceable("it calls len() on a value (use .length() or size on columns)")

    def __int__(self) -> NoReturn:
        raise Untraceable('it calls int() on a value (use .cast("long") on columns)')

    def __float__(self) -> NoReturn:
        raise Untraceable('it makes a float of a value (use .cast("double") on columns)')

    def __index__(self) -> NoReturn:
        raise Untraceable("it uses a value as a position")

    def __contains__(self, item: object) -> NoReturn:
        raise Untraceable("it asks whether something is in a value (use contains on columns)")

    def __round__(self, digits: int | None = None) -> NoReturn:
        raise Untraceable("round() in Python goes to the even digit (use .round() on columns)")

    def __format__(self, spec: str) -> str:
        _refuse_if_tracing("its text, as in an f-string")
        return format(repr(self), spec)

    def __str__(self) -> str:
        _refuse_if_tracing("its text, as str() does")
        return self.sql()

    def __repr__(self) -> str:
        _refuse_if_tracing("its text")
        return f"Expr({self.sql()!r})"


def _refuse_if_tracing(what: str) -> None:
    if TRACING.get() is not None:
        raise Untraceable(f"it needs {what} (use concat and cast on columns)")
