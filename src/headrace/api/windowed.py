"""Streams cut into windows: what is computed over each window.

The result has the key columns, `window_start`, `window_end`, then what was computed; its
event time is the last millisecond of the window, so windows can follow windows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.api import stream
from headrace.api.adding import Adding
from headrace.api.folding import accumulator, reduced
from headrace.errors import PlanError
from headrace.ops.aggregates import Aggregate
from headrace.ops.windows import Window
from headrace.plan.aggs import clashes, typed_aggs
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Edge, WindowAgg, WindowFold
from headrace.schema import TIMESTAMP, SchemaLike

BOUNDS = (pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP))


class WindowedStream:
    """A stream and its windows, waiting to hear what to compute."""

    def __init__(self, draft: Draft, edge: Edge, keys: tuple[str, ...], window: object) -> None:
        self._draft, self._edge, self._keys = draft, edge, keys
        self._window = self._checked(window)

    def agg(
        self, *, name: str | Aggregate | None = None, was: str | Aggregate | None = None,
        **aggs: Aggregate,
    ) -> stream.WindowResult:  # fmt: skip
        """Named aggregates of each window: `agg(celsius=hr.mean("celsius"), n=hr.count())`."""
        given, before, wanted = split_names(name, was, aggs)
        at = Adding(self._draft, self._edge, given, before)
        made, fields = typed_aggs(self._draft, wanted, at.schema, at.site)
        node = WindowAgg(
            schema=self._schema(at, fields), keys=(self._keys,), window=self._window, aggs=made,
            **at.common(),
        )  # fmt: skip
        return self._result(at, node)

    def reduce(
        self, fn: Callable[[Any, Any], Any], *, name: str | None = None, was: str | None = None
    ) -> stream.WindowResult:
        """Fold the rows of each window into one row, two at a time: fn(row, row) -> row."""
        at = Adding(self._draft, self._edge, name, was)
        function, value = reduced(at, fn, self._keys)
        return self._folded(at, function=function, zero=None, value=value)

    def fold(
        self, zero: Any, fn: Callable[[Any, Any], Any], *, schema: SchemaLike | None = None,
        name: str | None = None, was: str | None = None,
    ) -> stream.WindowResult:  # fmt: skip
        """Fold the rows of each window into a value: fn(value, row) -> value."""
        at = Adding(self._draft, self._edge, name, was)
        function, start, value = accumulator(at, zero, fn, schema)
        return self._folded(at, function=function, zero=start, value=value)

    def _folded(self, at: Adding, **fields: Any) -> stream.WindowResult:
        schema = self._schema(at, list(fields["value"]))
        node = WindowFold(
            schema=schema, keys=(self._keys,), window=self._window, **fields, **at.common()
        )
        return self._result(at, node)

    def _schema(self, at: Adding, fields: list[pa.Field]) -> pa.Schema:
        keys = [at.schema.field(k) for k in self._keys if k in at.schema.names]
        if not fields or len(keys) < len(self._keys):
            return UNKNOWN
        before = [*keys, *BOUNDS]
        for problem in clashes([f.name for f in before], fields, "part of every window's result"):
            at.report(problem)
        return pa.schema([*before, *(f for f in fields if f.name not in {b.name for b in before})])

    def _result(self, at: Adding, node: WindowAgg | WindowFold) -> stream.WindowResult:
        edge = at.add(node, "window")
        return stream.WindowResult(self._draft, edge)

    def _checked(self, window: object) -> Window:
        if isinstance(window, Window):
            return window
        Adding(self._draft, self._edge).report(
            PlanError(
                f"{window!r} is not a window", code="HR-PLAN-022",
                hint='Write hr.tumbling("5s") or hr.sliding("60s", every="5s").',
            )
        )  # fmt: skip
        return Window(1, 1)


def split_names(
    name: object, was: object, aggs: dict[str, Any]
) -> tuple[str | None, str | None, dict[str, Any]]:
    """Tell a step's `name=` and `was=` from result columns that are called so."""
    columns = {"name": name, "was": was}
    wanted = {**{k: v for k, v in columns.items() if isinstance(v, Aggregate)}, **aggs}
    given, before = (None if isinstance(v, Aggregate) else v for v in (name, was))
    return given, before, wanted  # type: ignore[return-value]
