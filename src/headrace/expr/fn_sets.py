"""Arrays as sets: distinct elements, unions, removal; and the size of arrays and maps.

Invariant: elements are in the order in which they first stand; null is an element like others;
NaN equals NaN and -0.0 equals 0.0, which is what a set of doubles holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr.catalog import listed, offer
from headrace.expr.types import DUCKDB, Term, is_nested

ARRAYS = "arrays and maps"


def _set_type(args: Sequence[Term]) -> pa.DataType:
    if is_nested(args[0].type.value_type):
        raise PlanError(
            "HR-EXPR-003",
            "it takes an array of plain values",
            "Use a Python function for arrays of arrays or structs.",
        )
    return args[0].type


def _distinct(args: Sequence[Term]) -> str:
    of = args[0].sql if len(args) == 1 else f"({' || '.join(a.sql for a in args)})"
    if args[0].type.value_type == pa.float64():
        of = f"list_transform({of}, lambda x: x + CAST(0 AS DOUBLE))"
    made = f"list_transform(list_sort({_firsts(of)}), lambda p: struct_extract_at(p, 2))"
    return f"(CASE WHEN {of} IS NOT NULL THEN {made} END)"


def _firsts(of: str) -> str:
    """(position, element) of the first of each: those that in order of elements begin a run."""
    pairs = f"list_sort(list_zip({of}, range(len({of}))))"
    element, before = "struct_extract_at(p, 1)", "struct_extract_at(s[i - 1], 1)"
    begins = f"lambda p, i: i = 1 OR {before} IS DISTINCT FROM {element}"
    found = f"list_transform([{pairs}], lambda s: list_filter(s, {begins}))[1]"
    return f"list_transform({found}, lambda p: row(struct_extract_at(p, 2), {element}))"


offer(ARRAYS, "array_distinct", "[T] -> [T]", _distinct, "array_distinct({0})", gives=_set_type)
offer(
    ARRAYS, "array_union", "[T] [T] -> [T]", _distinct, listed("array_union({})"), gives=_set_type
)
offer(
    ARRAYS,
    "array_remove",
    "[T] T -> [T]",
    "(CASE WHEN {0} IS NULL THEN NULL WHEN {1} IS NOT NULL "
    "THEN list_filter({0}, lambda x: x IS DISTINCT FROM {1}) END)",
    "array_remove({0}, {1})",
    gives=_set_type,
)


def _size_type(args: Sequence[Term]) -> pa.DataType:
    if pt.is_list(args[0].type) or pt.is_map(args[0].type):
        return pa.int32()
    raise PlanError(
        "HR-EXPR-003",
        "size takes an array or a map",
        "The number of characters of a text is length(x).",
    )


def _size(dialect: str) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        if dialect != DUCKDB:
            return f"size({args[0].sql})"
        word = "cardinality" if pt.is_map(args[0].type) else "len"
        return f"CAST({word}({args[0].sql}) AS INTEGER)"

    return sql


offer(ARRAYS, "size", "any -> int", _size(DUCKDB), _size("spark"), gives=_size_type)
