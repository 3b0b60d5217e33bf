"""Explicit casts, made equal in both engines.

Invariant: a cast either gives the same value in DuckDB and in Spark, or fails (`try_cast`:
is null) in both, or is refused when the program is built. Text is read by one strict grammar,
checked by the same pattern on either side; a double loses its fraction toward zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import types as pt

from headrace.expr_arith import refused
from headrace.expr_parse import Node
from headrace.expr_types import DUCKDB, Term, is_int, is_number, spoken, type_name
from headrace.schema import TIMESTAMP

if TYPE_CHECKING:
    from headrace.expr_lower import Lowering


def explicit_cast(
    low: Lowering, term: Term, to: pa.DataType, *, where: Node, safe: bool = False
) -> Term:
    """`term` as `to`; HR-EXPR-003 for a pair of types whose engines would not agree."""
    if term.type == to:
        return term
    name = type_name(to, low.dialect)
    word = "TRY_CAST" if safe else "CAST"
    return Term(f"{word}({term.sql} AS {name})", to)
