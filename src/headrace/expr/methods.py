"""Methods of an expression for the common functions; all others are in `functions`.

`col("name").upper()` is the same tree as `functions.upper("name")` and as "upper(name)".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.expr.expression import Expr


class Methods:
    """What every expression can do; whether its type can is checked against a schema."""

    __slots__ = ()

    def _call(self, name: str, *args: Any) -> Expr:
        raise NotImplementedError

    # text

    def upper(self) -> Expr:
        return self._call("upper")

    def lower(self) -> Expr:
        return self._call("lower")

    def trim(self) -> Expr:
        """Without blanks at either end."""
        return self._call("trim")

    def length(self) -> Expr:
        """Number of characters."""
        return self._call("length")

    def substring(self, start: Any, length: Any = None) -> Expr:
        """From position `start` (the first is 1, the last -1), `length` characters."""
        return self._call("substring", start, *([] if length is None else [length]))

    def left(self, count: Any) -> Expr:
        return self._call("left", count)

    def right(self, count: Any) -> Expr:
        return self._call("right", count)

    def replace(self, old: Any, new: Any = "") -> Expr:
        return self._call("replace", old, new)

    def contains(self, part: Any) -> Expr:
        return self._call("contains", part)

    def startswith(self, prefix: Any) -> Expr:
        return self._call("starts_with", prefix)

    def endswith(self, suffix: Any) -> Expr:
        return self._call("ends_with", suffix)

    def lpad(self, width: Any, by: Any = " ") -> Expr:
        return self._call("lpad", width, by)

    def rpad(self, width: Any, by: Any = " ") -> Expr:
        return self._call("rpad", width, by)

    def like(self, pattern: str, escape: str | None = None) -> Expr:
        """Whether it matches a SQL pattern: % is any text, _ any character."""
        return self._call("like", pattern, *([] if escape is None else [escape]))

    def ilike(self, pattern: str, escape: str | None = None) -> Expr:
        return self._call("ilike", pattern, *([] if escape is None else [escape]))

    def initcap(self) -> Expr:
        return self._call("initcap")

    def rlike(self, pattern: str) -> Expr:
        """Whether a regular expression matches somewhere in it."""
        return self._call("rlike", pattern)

    def regexp_replace(self, pattern: str, by: str) -> Expr:
        return self._call("regexp_replace", pattern, by)

    def regexp_extract(self, pattern: str, group: int = 1) -> Expr:
        return self._call("regexp_extract", pattern, group)

    # numbers and nulls

    def abs(self) -> Expr:
        return self._call("abs")

    def round(self, digits: int = 0) -> Expr:
        """Half away from zero, as SQL does."""
        return self._call("round", digits)

    def floor(self, digits: int | None = None) -> Expr:
        return self._call("floor", *([] if digits is None else [digits]))

    def ceil(self, digits: int | None = None) -> Expr:
        return self._call("ceil", *([] if digits is None else [digits]))

    def sqrt(self) -> Expr:
        return self._call("sqrt")

    def is_nan(self) -> Expr:
        return self._call("is_nan")

    def fill_null(self, value: Any) -> Expr:
        """Itself, or `value` where it is null."""
        return self._call("coalesce", value)

    # times

    def year(self) -> Expr:
        return self._call("year")

    def month(self) -> Expr:
        return self._call("month")

    def day(self) -> Expr:
        return self._call("dayofmonth")

    def hour(self) -> Expr:
        return self._call("hour")

    def minute(self) -> Expr:
        return self._call("minute")

    def second(self) -> Expr:
        return self._call("second")

    def unix_millis(self) -> Expr:
        return self._call("unix_millis")

    # arrays

    def size(self) -> Expr:
        """Number of elements of an array, or of entries of a map."""
        return self._call("size")

    def array_contains(self, value: Any) -> Expr:
        return self._call("array_contains", value)

    def transform(self, fn: Callable[..., Any]) -> Expr:
        """An array of what a lambda makes of each element."""
        from headrace.expr.api_lambdas import transform

        return transform(self, fn)

    def filter(self, fn: Callable[..., Any]) -> Expr:
        """The elements of an array for which a lambda holds."""
        from headrace.expr.api_lambdas import filter

        return filter(self, fn)

    def exists(self, fn: Callable[..., Any]) -> Expr:
        """Whether a lambda holds for an element of an array."""
        from headrace.expr.api_lambdas import exists

        return exists(self, fn)
