"""What only a value can answer, and an expression refuses: its truth, its length, its text.

Invariant: an expression never stands in silently for a value. Where Python asks for one, the
answer is `Untraceable` with a reason for people, so that a lambda being traced runs as Python
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextvars import ContextVar
from typing import Any, NoReturn

# While a lambda is traced: the names of the fields of an expression.
TRACING: ContextVar[Callable[[Any], Collection[str]] | None] = ContextVar("tracing", default=None)


class Untraceable(TypeError):
    """Python asked an expression for a value; `reason` says what asked, for people."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class NotAValue:
    """The questions of Python that a column cannot answer."""

    __slots__ = ()

    def sql(self) -> str:
        raise NotImplementedError

    def __bool__(self) -> NoReturn:
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
