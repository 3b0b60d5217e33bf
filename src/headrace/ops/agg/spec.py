"""Named aggregates as a part of a step: what identifies them, and how `explain` shows them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headrace.at_rest import described
from headrace.callables import settings
from headrace.ops.agg.named import Aggregate
from headrace.ops.agg.own import OwnAggregate

Aggs = tuple[tuple[str, Aggregate], ...]


def aggregates_shape(aggs: Aggs, input: pa.Schema) -> list[list[Any]]:
    """What shapes the partials of aggregates over rows of `input`, as plain JSON."""
    found = []
    for name, agg in aggs:
        entry: list[Any] = [name, agg.kind, described(pa.schema(agg.partial_fields(name, input)))]
        own = settings(agg.own, OwnAggregate) if agg.own is not None else {}
        own.pop("column", None)
        found.append([*entry, own] if own else entry)
    return found


def aggregates_code(aggs: Aggs) -> list[Any]:
    """The user's own aggregates: their classes and their settings."""
    own = [agg.own for _, agg in aggs if agg.own is not None]
    return [part for one in own for part in (type(one), vars(one))]


def aggregates_text(aggs: Sequence[tuple[str, Aggregate]]) -> str:
    return ", ".join(f"{name} = {bare_sql(str(agg))}" for name, agg in aggs)


def bare_sql(sql: str) -> str:
    """SQL for people: names are quoted only where they must be."""
    return re.sub(r"`([A-Za-z_]\w*)`", r"\1", sql)
