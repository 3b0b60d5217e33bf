"""Rows for the elements of an array: how `explode` is added to a program."""

from __future__ import annotations

import pyarrow as pa

from headrace.api.step_builder import Adding
from headrace.errors import PlanError
from headrace.ops.stream.explode import Explode, is_array
from headrace.plan.draft import UNKNOWN, unknown_columns
from headrace.plan.nodes import Chunks, Edge
from headrace.schema import ddl_type


def explode(at: Adding, column: str, into: str | None, outer: bool) -> Edge:
    """The step that makes a row for each element of `column`, in its place."""
    what = Explode(column, into or column, outer)
    schema = at.attempt(lambda: _exploded(at.schema, what)) if _known(at, column) else UNKNOWN
    return at.add(Chunks(what=what, schema=schema, **at.common()), what.kind)


def _known(at: Adding, column: str) -> bool:
    at.known([column])
    return column in at.schema.names and column not in unknown_columns(at.schema)


def _exploded(schema: pa.Schema, what: Explode) -> pa.Schema:
    kind = schema.field(what.column).type
    if not is_array(kind):
        raise PlanError(
            "HR-STREAM-012",
            f"explode takes an array, but {what.column!r} is of type {ddl_type(kind)}",
            "Of a map make an array first, by map_keys or map_values; of a text by split.",
        )
    if what.into != what.column and what.into in schema.names:
        raise PlanError(
            "HR-STREAM-012",
            f"explode would make a second column {what.into!r}",
            "Give the elements another name: as_=.",
        )
    at = schema.get_field_index(what.column)
    return schema.set(at, pa.field(what.into, kind.value_type))
