"""Expressions: one tree, built by operators, by SQL text, or by a traced lambda.

    col("t") > 40        "t > 40"        lambda e: e.t > 40

are equal trees. Invariant: an `Expr` is a value; no method changes it, and it knows neither
a schema nor an engine. Types and SQL are made in `lower`, tracing in `trace`, running
in `headrace.kernel`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headrace.errors import PlanError
from headrace.expr import tree
from headrace.expr.operators import TRACING, ColumnOperators, NotAValue, Untraceable
from headrace.expr.parse import parse
from headrace.expr.tree import literal
from headrace.hints import aggregate, nearest
from headrace.schema import ddl_type, type_of

__all__ = [
    "Column", "Expr", "Untraceable", "all_columns", "call", "col", "column_of", "lambda_of", "lit",
    "optional", "over", "parsed", "same",
]  # fmt: skip

_AROUND: ContextVar[frozenset[str]] = ContextVar("variables", default=frozenset())

TypeLike = Any  # a pyarrow type, a Python type, or the name of one
Column = Any  # an Expr, a column's name, or a literal that is not text


class Expr(ColumnOperators["Expr"], NotAValue):
    """A computation on the columns of a row."""

    __slots__ = ("node",)

    def __init__(self, node: tree.Node) -> None:
        self.node = node

    # what it is

    @property
    def name(self) -> str | None:
        """The name it gives itself: its alias, or the column or field that it is."""
        if isinstance(self.node, exp.Alias):
            return str(self.node.alias)
        if isinstance(self.node, exp.Column | exp.Dot):
            return str(self.node.name)
        return None

    @property
    def columns(self) -> frozenset[str]:
        """The columns it reads."""
        return frozenset(c.name for c in self.node.find_all(exp.Column))

    def sql(self) -> str:
        """The expression as SQL text, which `as_expr` reads back as the same tree."""
        return tree.show(self.node)

    def __hash__(self) -> int:
        return hash(self.node)

    def __reduce__(self) -> tuple[Callable[[str], Expr], tuple[str]]:
        return (parsed, (self.sql(),))

    # conditions

    def between(self, low: Any, high: Any) -> Expr:
        """Whether it is from `low` to `high`, both included."""
        return Expr(exp.Between(this=_node(self), low=_node(low), high=_node(high)))

    def isin(self, *values: Any) -> Expr:
        """Whether it is one of `values` (or of the one list passed)."""
        if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset):
            values = tuple(values[0])
        return Expr(exp.In(this=_node(self), expressions=[_node(v) for v in values]))

    def is_null(self) -> Expr:
        """Whether it is null."""
        return Expr(exp.Is(this=_node(self), expression=exp.Null()))

    def is_not_null(self) -> Expr:
        """Whether it is not null."""
        return ~self.is_null()

    def eq_null(self, other: Any) -> Expr:
        """Equal, where null equals null."""
        return self._infix(exp.NullSafeEQ, self, other)

    # shape

    def __getitem__(self, key: str | int | Expr) -> Expr:
        if isinstance(key, str):
            return self.field(key)
        if isinstance(key, int) and key < 0:
            return call("element_at", self, key)
        return Expr(exp.Bracket(this=_node(self), expressions=[_node(key)]))

    def field(self, name: str) -> Expr:
        """A field of a struct, or the value of a map under a name."""
        return Expr(tree.field(_node(self), name))

    def cast(self, to: TypeLike) -> Expr:
        """As another type; a value that does not fit is an error of its row."""
        return Expr(tree.cast(_node(self), ddl_type(type_of(to))))

    def try_cast(self, to: TypeLike) -> Expr:
        """As `cast`, but null where the value does not fit."""
        return Expr(tree.cast(_node(self), ddl_type(type_of(to)), safe=True))

    def alias(self, name: str) -> Expr:
        """The same under a name, for `select` and others that take names from expressions."""
        inner = _node(self)
        return Expr(exp.Alias(this=inner, alias=exp.Identifier(this=name, quoted=True)))

    # text

    def upper(self) -> Expr:
        """In upper case."""
        return self._call("upper")

    def lower(self) -> Expr:
        """In lower case."""
        return self._call("lower")

    def trim(self) -> Expr:
        """Without blanks at either end."""
        return self._call("trim")

    def length(self) -> Expr:
        """Number of characters."""
        return self._call("length")

    def substring(self, start: Any, length: Any = None) -> Expr:
        """From position `start` (the first is 1, the last -1), `length` characters."""
        return self._call("substring", start, *optional(length))

    def left(self, count: Any) -> Expr:
        """The first `count` characters."""
        return self._call("left", count)

    def right(self, count: Any) -> Expr:
        """The last `count` characters."""
        return self._call("right", count)

    def replace(self, old: Any, new: Any = "") -> Expr:
        """With every `old` replaced by `new`."""
        return self._call("replace", old, new)

    def contains(self, part: Any) -> Expr:
        """Whether `part` is in it."""
        return self._call("contains", part)

    def startswith(self, prefix: Any) -> Expr:
        """Whether it starts with `prefix`."""
        return self._call("starts_with", prefix)

    def endswith(self, suffix: Any) -> Expr:
        """Whether it ends with `suffix`."""
        return self._call("ends_with", suffix)

    def lpad(self, width: Any, by: Any = " ") -> Expr:
        """Padded at the start, or cut, to `width` characters."""
        return self._call("lpad", width, by)

    def rpad(self, width: Any, by: Any = " ") -> Expr:
        """Padded at the end, or cut, to `width` characters."""
        return self._call("rpad", width, by)

    def like(self, pattern: str, escape: str | None = None) -> Expr:
        """Whether it matches a SQL pattern: % is any text, _ any character."""
        return self._call("like", pattern, *optional(escape))

    def ilike(self, pattern: str, escape: str | None = None) -> Expr:
        """As `like`, in any case."""
        return self._call("ilike", pattern, *optional(escape))

    def initcap(self) -> Expr:
        """Each word with a capital first letter, the others small."""
        return self._call("initcap")

    def rlike(self, pattern: str) -> Expr:
        """Whether a regular expression matches somewhere in it."""
        return self._call("rlike", pattern)

    def regexp_replace(self, pattern: str, by: str) -> Expr:
        """With every match replaced; $1 is the first group."""
        return self._call("regexp_replace", pattern, by)

    def regexp_extract(self, pattern: str, group: int = 1) -> Expr:
        """A group of the first match; empty without one."""
        return self._call("regexp_extract", pattern, group)

    # numbers and nulls

    def abs(self) -> Expr:
        """The absolute value."""
        return self._call("abs")

    def round(self, digits: int = 0) -> Expr:
        """Half away from zero, as SQL does."""
        return self._call("round", digits)

    def floor(self, digits: int | None = None) -> Expr:
        """The next whole number downwards, as a long; to so many digits, as a decimal."""
        return self._call("floor", *optional(digits))

    def ceil(self, digits: int | None = None) -> Expr:
        """The next whole number upwards, as a long; to so many digits, as a decimal."""
        return self._call("ceil", *optional(digits))

    def sqrt(self) -> Expr:
        """The square root; NaN of a negative number."""
        return self._call("sqrt")

    def is_nan(self) -> Expr:
        """Whether it is NaN; false for null."""
        return self._call("is_nan")

    def fill_null(self, value: Any) -> Expr:
        """Itself, or `value` where it is null."""
        return self._call("coalesce", value)

    # times

    def year(self) -> Expr:
        """The year."""
        return self._call("year")

    def month(self) -> Expr:
        """The month, 1 to 12."""
        return self._call("month")

    def day(self) -> Expr:
        """The day of the month, 1 to 31."""
        return self._call("dayofmonth")

    def hour(self) -> Expr:
        """The hour in UTC."""
        return self._call("hour")

    def minute(self) -> Expr:
        """The minute."""
        return self._call("minute")

    def second(self) -> Expr:
        """The second."""
        return self._call("second")

    def unix_millis(self) -> Expr:
        """Milliseconds since 1970."""
        return self._call("unix_millis")

    # arrays

    def size(self) -> Expr:
        """Number of elements of an array, or of entries of a map."""
        return self._call("size")

    def array_contains(self, value: Any) -> Expr:
        """Whether an element of an array equals `value`."""
        return self._call("array_contains", value)

    def transform(self, fn: Callable[..., Any]) -> Expr:
        """An array of what a lambda makes of each element."""
        return self._call("transform", lambda_of(fn, 1, 2))

    def filter(self, fn: Callable[..., Any]) -> Expr:
        """The elements of an array for which a lambda holds."""
        return self._call("filter", lambda_of(fn, 1, 2))

    def exists(self, fn: Callable[..., Any]) -> Expr:
        """Whether a lambda holds for an element of an array."""
        return self._call("exists", lambda_of(fn, 1))

    def __getattr__(self, name: str) -> Expr:
        """A field of a struct, in a traced lambda; otherwise a hint at what there is."""
        fields_of = TRACING.get()
        if fields_of is None or name.startswith("__"):
            raise AttributeError(_no_attribute(name))
        if isinstance(self.node, exp.Identifier):
            return self.field(name)  # of a lambda's variable, whose type is not known here
        if name in fields_of(self):
            return self.field(name)
        raise Untraceable(f"it uses .{name}, which columns do not have")

    # how operators and methods make nodes

    def _infix(self, kind: type[tree.Node], left: Any, right: Any) -> Expr:
        return Expr(kind(this=_node(left), expression=_node(right)))

    def _prefix(self, kind: type[tree.Node]) -> Expr:
        return Expr(kind(this=_node(self)))

    def _function(self, name: str, *args: Any) -> Expr:
        return call(name, *args)

    def _call(self, name: str, *args: Any) -> Expr:
        return call(name, self, *args)


def _no_attribute(name: str) -> str:
    if ours := aggregate(name):
        return f'an expression has no {name!r}: aggregates are functions in agg, as hr.{ours}("x")'
    if name in ("str", "dt", "list", "struct"):
        return f"an expression has no {name!r}: its functions are names of headrace, as hr.upper(x)"
    near = nearest(name, dir(Expr), 2)
    guess = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"an expression has no {name!r}{guess} (a field of a struct is col(...)[{name!r}])"


def _node(value: Any) -> tree.Node:
    """A node of its own for `value`: a tree never shares a branch with another."""
    if isinstance(value, ColumnOperators) and not isinstance(value, Expr):
        value = value.as_expr()  # an aggregate, as the call that it is in SQL
    if not isinstance(value, Expr):
        return literal(value)
    inner = value.node.this if isinstance(value.node, exp.Alias) else value.node
    copied: tree.Node = inner.copy()
    return copied


def call(name: str, *args: Any) -> Expr:
    """A function call by name; the name is checked when the expression meets a schema."""
    return Expr(tree.call(name, *(_node(a) for a in args)))


def optional(argument: Any) -> tuple[Any, ...]:
    """An argument of a call, or none where it was left out."""
    return () if argument is None else (argument,)


def col(name: str) -> Expr:
    """The column `name`, spelt exactly as in the schema."""
    return Expr(tree.column(name))


def column_of(spec: Column) -> Expr:
    """An expression, or the column of that name; other values are literals."""
    return col(spec) if isinstance(spec, str) else lit(spec)


def lit(value: Any) -> Expr:
    """A constant: a number, text, bytes, a date, a datetime, a timedelta, a Decimal, a list."""
    return Expr(_node(value))


def parsed(text: str, *, named: bool = True) -> Expr:
    """The expression that a Spark SQL text describes; a name in it is refused unless `named`."""
    node = parse(text).copy()
    if isinstance(node, exp.Alias) and not named:
        raise tree.unreadable(text, f"the name {node.alias!r} would be without use here")
    return Expr(node)


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same tree (`a == b` builds a comparison instead)."""
    return bool(a.node == b.node)


def over(expr: Expr, columns: Mapping[str, Expr]) -> Expr:
    """The expression with what each of these columns is made of in the column's place."""

    def one(node: Any) -> Any:
        if not isinstance(node, exp.Column) or node.name not in columns:
            return node
        replacement = columns[node.name].node
        return (replacement.this if isinstance(replacement, exp.Alias) else replacement).copy()

    return Expr(expr.node.copy().transform(one))


def all_columns(schema: pa.Schema) -> dict[str, Expr]:
    return {name: col(name) for name in schema.names}


def lambda_of(fn: Callable[..., Any], least: int, most: int | None = None) -> Expr:
    """The arrow function that a Python lambda of `least` to `most` elements describes.

    It is called once, with expressions in place of elements. No variable has the name of a
    variable around it, or of a column that the lambda reads: so the tree means the same when it
    is written as text.
    """
    names = _parameters(fn, least, most or least)
    while True:
        inside = _AROUND.get() | set(names)
        token = _AROUND.set(inside)
        try:
            body = lit(fn(*(Expr(exp.Identifier(this=n, quoted=True)) for n in names)))
        finally:
            _AROUND.reset(token)
        read = {c.casefold() for c in body.columns}
        if not any(n.casefold() in read for n in names):
            return Expr(
                exp.Lambda(
                    this=body.node, expressions=[exp.Identifier(this=n, quoted=True) for n in names]
                )
            )
        names = [f"{n}_" for n in names]


def _parameters(fn: Callable[..., Any], least: int, most: int) -> list[str]:
    """The names of a lambda's parameters, changed where one around has them."""
    try:
        names = [p.name for p in inspect.signature(fn).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        names = []
    if not least <= len(names) <= most:
        many = f"{least}" if least == most else f"{least} or {most}"
        raise PlanError(
            "HR-EXPR-003",
            f"{fn!r} does not take {many} elements",
            'Write a lambda, as in transform("xs", lambda x: x + 1).',
        )
    around = {n.casefold() for n in _AROUND.get()}
    while any(n.casefold() in around for n in names):
        names = [f"{n}_" for n in names]
    return names
