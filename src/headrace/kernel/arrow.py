"""Simple conditions straight on Arrow: columns against literals, joined by and, or, not.

Invariant: a condition is taken here only if Arrow provably decides as the kernel's SQL does:
null is unknown, NaN is larger than every number, text compares by its bytes. Everything else
is None, and left to DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from headrace.expr.tree import Node

Mask = Callable[[pa.Table], pa.ChunkedArray]
_MOST = 8  # values of an IN: beyond that a chain of comparisons is slower than DuckDB


def simple_mask(node: Node, schema: pa.Schema) -> Mask | None:
    """A function that returns the mask of the rows where `node` holds; None if it is not simple."""
    make = _MAKERS.get(type(node))
    return None if make is None else make(node, schema)


def _column(node: Node, schema: pa.Schema) -> str | None:
    is_column = isinstance(node, exp.Column) and node.name in schema.names
    if is_column and schema.field(node.name).type in _LITERALS:
        return str(node.name)
    return None


def _value(node: Node, kind: pa.DataType) -> Any:
    """The literal as a value of exactly that column's kind, or None."""
    sign = 1
    if isinstance(node, exp.Neg):
        node, sign = node.this, -1
    if not isinstance(node, exp.Literal):
        return None
    if node.args["is_string"]:
        return node.this if kind == pa.string() and sign == 1 else None
    integer = node.this.isdigit()
    if kind == pa.float64():
        return sign * float(node.this)
    return sign * int(node.this) if integer and kind != pa.string() else None


# Not `greater`: of NaN, Arrow says it is neither; we say it is larger.
_TESTS: dict[type[Node], Callable[[Any, Any], Any]] = {
    exp.EQ: pc.equal,
    exp.NEQ: pc.not_equal,
    exp.LT: pc.less,
    exp.LTE: pc.less_equal,
    exp.GT: lambda x, v: pc.invert(pc.less_equal(x, v)),
    exp.GTE: lambda x, v: pc.invert(pc.less(x, v)),
}
MIRRORED: dict[type[Node], type[Node]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}  # fmt: skip
_LITERALS = {pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.string()}


def _comparison(node: Node, schema: pa.Schema) -> Mask | None:
    kind, left, right = type(node), node.this, node.expression
    if not isinstance(left, exp.Column):
        kind, left, right = MIRRORED[kind], right, left
    return _test(_TESTS[kind], left, right, schema)


def _test(
    test: Callable[[Any, Any], Any], left: Node, right: Node, schema: pa.Schema
) -> Mask | None:
    name = _column(left, schema)
    value = None if name is None else _value(right, schema.field(name).type)
    if name is None or value is None or (isinstance(value, int) and abs(value) >= 2**63):
        return None
    scalar = pa.scalar(value)
    return lambda table: test(table.column(name), scalar)


def _between(node: Node, schema: pa.Schema) -> Mask | None:
    low = _test(_TESTS[exp.GTE], node.this, node.args["low"], schema)
    high = _test(_TESTS[exp.LTE], node.this, node.args["high"], schema)
    return _joined(pc.and_kleene, [low, high])


def _in(node: Node, schema: pa.Schema) -> Mask | None:
    if not 0 < len(node.expressions) <= _MOST:
        return None
    parts = [_test(pc.equal, node.this, value, schema) for value in node.expressions]
    return _joined(pc.or_kleene, parts)


def _and_or(node: Node, schema: pa.Schema) -> Mask | None:
    join = pc.and_kleene if isinstance(node, exp.And) else pc.or_kleene
    return _joined(join, [simple_mask(n, schema) for n in (node.this, node.expression)])


def _joined(join: Callable[[Any, Any], Any], parts: list[Mask | None]) -> Mask | None:
    masks = [p for p in parts if p is not None]
    if len(masks) < len(parts):
        return None

    def mask(table: pa.Table) -> pa.ChunkedArray:
        result = masks[0](table)
        for other in masks[1:]:
            result = join(result, other(table))
        return result

    return mask


def _not(node: Node, schema: pa.Schema) -> Mask | None:
    inner = simple_mask(node.this, schema)
    return None if inner is None else lambda table: pc.invert(inner(table))


def _is_null(node: Node, schema: pa.Schema) -> Mask | None:
    if not isinstance(node.expression, exp.Null) or not isinstance(node.this, exp.Column):
        return None
    name = node.this.name
    return lambda table: pc.is_null(table.column(name))


def _truth(node: Node, schema: pa.Schema) -> Mask | None:
    name = node.name
    if name not in schema.names or schema.field(name).type != pa.bool_():
        return None
    return lambda table: table.column(name)


_MAKERS: dict[type[Node], Callable[[Node, pa.Schema], Mask | None]] = {
    **dict.fromkeys(_TESTS, _comparison),
    exp.Between: _between,
    exp.In: _in,
    exp.And: _and_or,
    exp.Or: _and_or,
    exp.Not: _not,
    exp.Is: _is_null,
    exp.Column: _truth,
}
