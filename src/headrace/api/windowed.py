"""Streams cut into windows: what is computed over each window.

The result has the key columns, `window_start`, `window_end`, then what was computed; its
event time is the last millisecond of the window, so windows can follow windows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa

from headrace.api import stream
from headrace.api.folding import accumulator, reduced
from headrace.api.step_builder import PLAIN, Adding
from headrace.api.window_checks import is_class
from headrace.api.windowing import Cut
from headrace.callables import PyFunction, site_of, title
from headrace.errors import PlanError
from headrace.hints import named_arguments
from headrace.ops.agg.named import Aggregate
from headrace.ops.agg.own import OwnAggregate
from headrace.ops.running.spec import Folding
from headrace.ops.window.process import WindowProcess, takes
from headrace.ops.window.spec import Computed, Processing
from headrace.plan.aggs import clashes, key_clashes, typed_aggs
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Edge, Stateful
from headrace.plan.signature import any_schema
from headrace.schema import TIMESTAMP, SchemaLike

BOUNDS = (pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP))


@named_arguments
class WindowedStream:
    """A stream and its windows, waiting to hear what to compute."""

    def __init__(self, draft: Draft, edge: Edge, keys: tuple[str, ...], windows: Cut) -> None:
        self._draft, self._edge, self._keys, self._cut = draft, edge, keys, windows

    def agg(
        self,
        *,
        name: str | Aggregate | None = None,
        was: str | Aggregate | None = None,
        **aggs: Aggregate,
    ) -> stream.WindowResult:
        """Named aggregates of each window: `agg(celsius=hr.mean("celsius"), n=hr.count())`."""
        given, before, wanted = split_names(name, was, aggs)
        at = Adding(self._draft, self._edge, given, before)
        made, fields = typed_aggs(self._draft, wanted, at.schema, at.site)
        return self._result(at, fields, made)

    def reduce(
        self, fn: Callable[[Any, Any], Any], *, name: str | None = None, was: str | None = None
    ) -> stream.WindowResult:
        """Fold the rows of each window into one row, two at a time: fn(row, row) -> row.

        Rows come batch after batch, those of a batch in event-time order.
        """
        at = Adding(self._draft, self._edge, name, was)
        function, rows = reduced(at, fn, self._keys)
        fields = self._folded(at, rows)
        # Windows that fire once keep the row that fn gave last, whole, for the next call of it.
        value = rows if self._cut.plain else pa.schema(fields)
        return self._result(at, fields, Folding(function, None, value))

    def fold(
        self,
        zero: Any,
        fn: Callable[[Any, Any], Any],
        *,
        schema: SchemaLike | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.WindowResult:
        """Fold the rows of each window into a value: fn(value, row) -> value.

        Rows come batch after batch, those of a batch in event-time order.
        """
        at = Adding(self._draft, self._edge, name, was)
        function, start, value = accumulator(at, zero, fn, schema)
        return self._result(at, list(value), Folding(function, start, value))

    def process(
        self,
        fn: Callable[..., Any] | WindowProcess,
        *,
        schema: SchemaLike | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.WindowResult:
        """All rows of each window at once: fn(key, window, rows) gives a row, or rows.

        `window` has `start`, `end` (ms), `pane`, `timing` and `final`; `rows` are in event-time
        order. With a fourth argument, `ctx`, it gets what has `watermark`, `clock` and
        `count(name, n)`. A `WindowProcess` may keep values per key and window.
        """
        at = Adding(self._draft, self._edge, name, was)
        method = fn.process if isinstance(fn, WindowProcess) else fn
        with self._draft.attempt(at.site):
            _check_process(fn)
            _check_arguments(method)
            if isinstance(fn, WindowProcess) and fn.values and self._cut.by_rows:
                raise PlanError(
                    "HR-WINDOW-044",
                    f"{type(fn).__name__} keeps values, which windows of rows cannot",
                    "Keep them in a keyed process function after it.",
                )
            if self._cut.mode == "retract":
                raise PlanError(
                    "HR-WINDOW-040",
                    "process cannot take back what it gave",
                    'Use mode="replace" or "delta", or aggregates instead of process.',
                )
        value = at.attempt(lambda: any_schema(method, schema, "process"))
        function = PyFunction(cast("Any", fn), site_of(method), PLAIN)
        return self._result(at, list(value), Processing(function, value), unbounded)

    def _result(
        self, at: Adding, fields: list[pa.Field], computed: Computed, unbounded: bool = False
    ) -> stream.WindowResult:
        common = at.common()
        clocked = self._cut.clocked
        timed = common.pop("timed") or clocked or not self._cut.by_rows
        node = Stateful(
            what=self._cut.spec(computed, keyed=bool(self._keys)),
            schema=self._schema(at, fields),
            keys=(self._keys,),
            processing=clocked,
            unbounded=unbounded,
            timed=timed,
            **common,
        )
        return stream.WindowResult(self._draft, at.add(node, "window"))

    def _folded(self, at: Adding, rows: pa.Schema) -> list[pa.Field]:
        """The columns of a row that stay: rows that are results of windows have bounds already."""
        added = {f.name for f in (*BOUNDS, *self._cut.fields())}
        fields = [f for f in rows if f.name not in added]
        if rows.names and not fields:
            at.report(
                PlanError(
                    "HR-PLAN-021",
                    "reduce has nothing to fold: every column is part of the key, or one that "
                    "the window gives anew",
                    "Use .agg(count=hr.count()) to count rows.",
                )
            )
        return fields

    def _schema(self, at: Adding, fields: list[pa.Field]) -> pa.Schema:
        keys = [at.schema.field(k) for k in self._keys if k in at.schema.names]
        if not fields or len(keys) < len(self._keys):
            return UNKNOWN
        after = self._cut.fields()
        problems = key_clashes(self._keys, [*BOUNDS, *after])
        for problem in problems:
            at.report(problem)
        if problems:
            return UNKNOWN
        before = [*keys, *BOUNDS]
        taken = [f.name for f in (*before, *after)]
        for problem in clashes(taken, fields, "part of every window's result"):
            at.report(problem)
        return pa.schema([*before, *(f for f in fields if f.name not in taken), *after])


def _check_process(fn: object) -> None:
    if isinstance(fn, type) and issubclass(fn, WindowProcess):
        raise is_class(fn, "a process function")
    own = isinstance(fn, WindowProcess) and getattr(fn.process, "__func__", None)
    if own is WindowProcess.process:
        raise PlanError(
            "HR-WINDOW-049",
            f"the window function {type(fn).__name__} has no process",
            "Give it a method process(self, key, window, rows) that gives rows.",
        )


def _check_arguments(fn: Any) -> None:
    """Three arguments, or four; not in another order, if their names tell."""
    if not takes(fn, 3) and not takes(fn, 4):
        raise PlanError(
            "HR-PLAN-028",
            "process calls its function with key, window, rows and, if it takes four, ctx; "
            f"it cannot call {title(fn) if callable(fn) else repr(fn)} so",
            "Write a function of (key, window, rows) or (key, window, rows, ctx).",
        )
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # a builtin that does not tell its signature
        return
    if names[1:2] == ["rows"] or names[2:3] == ["window"]:
        raise PlanError(
            "HR-WINDOW-050",
            f"{title(fn)} takes ({', '.join(names)}), but process gives the window before the rows",
            "Write (key, window, rows).",
        )


def split_names(
    name: object, was: object, aggs: dict[str, Any]
) -> tuple[str | None, str | None, dict[str, Any]]:
    """Tell a step's `name=` and `was=` from result columns that are called so."""
    kinds = (Aggregate, OwnAggregate)
    columns = {"name": name, "was": was}
    wanted = {**{k: v for k, v in columns.items() if isinstance(v, kinds)}, **aggs}
    given, before = (None if isinstance(v, kinds) else v for v in (name, was))
    return given, before, wanted  # type: ignore[return-value]
