"""Expressions: one tree, built by operators, by SQL text, or by a traced lambda.

    col("t") > 40        "t > 40"        lambda e: e.t > 40

are equal trees. Invariant: an `Expr` is a value; no method changes it, and it knows neither
a schema nor an engine. Types and SQL are made in `lower`, tracing in `trace`, running
in `headrace.kernel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa
from sqlglot import exp

from headrace.expr import tree
from headrace.expr.literal import literal
from headrace.expr.methods import Methods
from headrace.expr.operators import Operators
from headrace.expr.parse import parse
from headrace.expr.values import TRACING, NotAValue, Untraceable
from headrace.hints import nearest
from headrace.schema import ddl_type, type_of

__all__ = [
    "Column", "Expr", "Untraceable", "all_columns", "as_expr", "as_exprs", "call", "col",
    "column_of", "lit", "over", "parsed", "same",
]  # fmt: skip

TypeLike = Any  # a pyarrow type, a Python type, or the name of one
Column = Any  # an Expr, a column's name, or a literal that is not text


class Expr(Operators, Methods, NotAValue):
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
        return Expr(exp.Between(this=_node(self), low=_node(low), high=_node(high)))

    def isin(self, *values: Any) -> Expr:
        """Whether it is one of `values` (or of the one list that is given)."""
        if len(values) == 1 and isinstance(values[0], list | tuple | set | frozenset):
            values = tuple(values[0])
        return Expr(exp.In(this=_node(self), expressions=[_node(v) for v in values]))

    def is_null(self) -> Expr:
        return Expr(exp.Is(this=_node(self), expression=exp.Null()))

    def is_not_null(self) -> Expr:
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
        return Expr(tree.cast(_node(self), ddl_type(type_of(to))))

    def try_cast(self, to: TypeLike) -> Expr:
        """As `cast`, but null where the value does not fit."""
        return Expr(tree.cast(_node(self), ddl_type(type_of(to)), safe=True))

    def alias(self, name: str) -> Expr:
        inner = _node(self)
        return Expr(exp.Alias(this=inner, alias=exp.Identifier(this=name, quoted=True)))

    def __getattr__(self, name: str) -> Expr:
        """A field of a struct, in a traced lambda; otherwise a hint at what there is."""
        schema = TRACING.get()
        if schema is None or name.startswith("__"):
            raise AttributeError(_no_attribute(name))
        if isinstance(self.node, exp.Identifier):
            return self.field(name)  # of a lambda's variable, whose type is not known here
        from headrace.expr.lower import fields_of

        if name in fields_of(self, schema):
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
    near = nearest(name, dir(Expr), 2)
    guess = f"; did you mean {' or '.join(near)}?" if near else ""
    return f"an expression has no {name!r}{guess} (a field of a struct is col(...)[{name!r}])"


def _node(value: Any) -> tree.Node:
    """A node of its own for `value`: a tree never shares a branch with another."""
    if not isinstance(value, Expr):
        return literal(value)
    inner = value.node.this if isinstance(value.node, exp.Alias) else value.node
    copied: tree.Node = inner.copy()
    return copied


def call(name: str, *args: Any) -> Expr:
    """A function call by name; the name is checked when the expression meets a schema."""
    return Expr(tree.call(name, *(_node(a) for a in args)))


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
    made = parse(text).copy()
    if isinstance(made, exp.Alias) and not named:
        raise tree.unreadable(text, f"the name {made.alias!r} would be without use here")
    return Expr(made)


def same(a: Expr, b: Expr) -> bool:
    """Whether two expressions are the same tree (`a == b` builds a comparison instead)."""
    return bool(a.node == b.node)


def over(expr: Expr, made: Mapping[str, Expr]) -> Expr:
    """The expression with what each of these columns is made of in the column's place."""

    def one(node: Any) -> Any:
        if not isinstance(node, exp.Column) or node.name not in made:
            return node
        of = made[node.name].node
        return (of.this if isinstance(of, exp.Alias) else of).copy()

    return Expr(expr.node.copy().transform(one))


def all_columns(schema: pa.Schema) -> dict[str, Expr]:
    return {name: col(name) for name in schema.names}


def as_expr(spec: Any, schema: pa.Schema) -> Expr:
    """What `spec` means over `schema`: an Expr, a column's name, SQL text, a lambda or a literal.

    Raises PlanError HR-EXPR-001 to -004, and Untraceable for a function that has to run as
    Python.
    """
    from headrace.expr.lower import check
    from headrace.expr.trace import trace

    if isinstance(spec, str):
        made = col(spec) if spec in schema.names else parsed(spec)
    elif callable(spec) and not isinstance(spec, Expr):
        return trace(spec, schema)
    else:
        made = spec if isinstance(spec, Expr) else lit(spec)
    check(made, schema)
    return made


def as_exprs(specs: Iterable[Any], schema: pa.Schema) -> list[Expr]:
    return [as_expr(s, schema) for s in specs]
