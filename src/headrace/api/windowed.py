"""Streams cut into windows: what is computed over each window.

The result has the key columns, `window_start`, `window_end`, then what was computed; its
event time is the last millisecond of the window, so windows can follow windows; or, with
`result_time`, that of a row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pyarrow as pa

from headrace.api.handles import PLAIN, AnyStream, StepBuilder
from headrace.api.row_window_checks import check_stored
from headrace.api.stateful import (
    finished,
    fold_function,
    of_stored,
    reduce_function,
    split_options,
)
from headrace.api.window_cut import (
    BOUNDS,
    Cut,
    check_aggregates,
    check_keep,
    is_class,
    sharing,
)
from headrace.callables import PyFunction, site_of, title
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.hints import named_arguments, no_such_name
from headrace.ops.agg.named import Aggregate
from headrace.ops.process.operator_kinds import OperatorKind
from headrace.ops.window.process import WindowProcess, takes
from headrace.ops.window.spec import Computed, Processing
from headrace.plan.aggregation import aggregation, named_specs
from headrace.plan.columns import clashes, key_clashes, typed_aggs
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Edge
from headrace.plan.signature import any_schema
from headrace.schema import SchemaLike

ResultT = TypeVar("ResultT", bound=AnyStream)


@named_arguments
class WindowedStream(Generic[ResultT]):
    """A stream and its windows, before it is known what to compute."""

    def __init__(
        self, draft: Draft, edge: Edge, keys: tuple[str, ...], windows: Cut, result: type[ResultT]
    ) -> None:
        self._draft, self._edge, self._keys = draft, edge, keys
        self._cut, self._kind = windows, result

    def agg(
        self,
        *texts: str | Expr,
        name: str | Aggregate | Expr | None = None,
        was: str | Aggregate | Expr | None = None,
        since: str | Aggregate | Expr | None = None,
        was_fields: Mapping[str, str] | Aggregate | Expr | None = None,
        **aggs: Aggregate | Expr | str,
    ) -> ResultT:
        """Named aggregates of each window: `agg(celsius=hr.mean("celsius"), n=hr.count())`.

        As SQL text or as arithmetic, too: `agg("sum(v) / count(*) as mean")`,
        `agg(spread=hr.max("v") - hr.min("v"))`.

        Of a changed program: `since="restart"` lets aggregates that its state does not have yet
        count from the start on, `since="beginning"` computes them of the past rows, too, read again
        from the inputs, and `was_fields={"new": "old"}` renames those that it has.
        """
        options, named = split_options(aggs, name=name, was=was, since=since, was_fields=was_fields)
        step = self._step(options["name"], options["was"])
        specs = named_specs(self._draft, texts, named, step.site)
        around = [*self._keys, *(f.name for f in BOUNDS)]
        what = aggregation(self._draft, specs, step.schema, step.site, around)
        edge = self._add(step, what.fields, what.aggs, **of_stored(step, what, options))
        others = [n for n in edge.schema.names if n not in {f.name for f in what.fields}]
        step.report(*clashes(others, what.computed, "part of every window's result"))
        after = [n for n in others if n not in around]
        order = [*(n for n in others if n in around), *specs, *after]
        return self._kind(self._draft, finished(step, edge, what, order))

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            raise no_such_name("a stream of windows", method, dir(WindowedStream))

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        inverse: Callable[[Any, Any], Any] | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> ResultT:
        """Fold the rows of each window into one row, two at a time: fn(row, row) -> row.

        Rows come batch after batch, those of a batch in event-time order. With `merge`, which is
        mostly `fn` again, each row is folded once, into its pane, and sliding windows are merged
        from panes, the earlier first. With `inverse` as well, a window is the one before, less
        the panes that left it: inverse(row, pane) -> row.
        """
        step = self._step(name, was)
        folding = reduce_function(step, fn, self._keys)
        with self._draft.attempt(step.site):
            folding = sharing(self._cut, folding, merge, inverse)
        fields = self._folded(step, folding.value)
        # Windows that fire once store the row that fn returned last, whole, for its next call.
        if not self._cut.plain:
            folding = replace(folding, value=pa.schema(fields))
        return self._result(step, fields, folding)

    def fold(
        self,
        zero: Any,
        fn: Callable[[Any, Any], Any],
        *,
        merge: Callable[[Any, Any], Any] | None = None,
        inverse: Callable[[Any, Any], Any] | None = None,
        schema: SchemaLike | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> ResultT:
        """Fold the rows of each window into a value: fn(value, row) -> value.

        Rows come batch after batch, those of a batch in event-time order. With
        merge(value, value) each row is folded once, into its pane, and sliding windows are merged
        from panes, the earlier first. With inverse(value, pane) as well, a window is the one
        before, less the panes that left it.
        """
        step = self._step(name, was)
        folding = fold_function(step, zero, fn, schema)
        with self._draft.attempt(step.site):
            folding = sharing(self._cut, folding, merge, inverse)
        return self._result(step, list(folding.value), folding)

    def process(
        self,
        fn: Callable[..., Any] | WindowProcess,
        *,
        agg: Mapping[str, Aggregate] | None = None,
        schema: SchemaLike | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> ResultT:
        """All rows of each window at once: fn(key, window, rows) returns a row, or rows.

        `window` has `start`, `end` (ms), `pane`, `timing` and `final`; `rows` are in event-time
        order. With a fourth argument, `ctx`, it gets what has `watermark`, `clock` and
        `count(name, n)`. A `WindowProcess` may store values per key and window.

        With `agg={"n": hr.count()}` it is called with a row of these aggregates instead of the
        rows, fn(key, window, values): then no row is stored.
        """
        step = self._step(name, was)
        method = fn.process if isinstance(fn, WindowProcess) else fn
        with self._draft.attempt(step.site):
            _check_process(fn)
            _check_arguments(method)
            if isinstance(fn, WindowProcess) and fn.values:
                check_stored(self._cut, fn)
            if self._cut.mode == "retract":
                raise PlanError(
                    "HR-WINDOW-040",
                    "process cannot take back what it gave",
                    'Use mode="replace" or "delta", or aggregates instead of process.',
                )
        value = step.attempt(lambda: any_schema(method, schema, "process"))
        function = PyFunction(cast("Any", fn), site_of(method), PLAIN)
        processing = Processing(function, value)
        if agg is not None:
            with self._draft.attempt(step.site):
                check_aggregates(agg)
                aggs, fields = typed_aggs(self._draft, dict(agg), step.schema, step.site)
                processing = replace(processing, aggs=aggs, aggregated=pa.schema(fields))
        return self._result(step, list(value), processing, unbounded)

    def _result(
        self, step: StepBuilder, fields: list[pa.Field], computed: Computed, unbounded: bool = False
    ) -> ResultT:
        return self._kind(self._draft, self._add(step, fields, computed, unbounded=unbounded))

    def _add(
        self, step: StepBuilder, fields: list[pa.Field], computed: Computed, **more: Any
    ) -> Edge:
        clocked = self._cut.clocked
        with self._draft.attempt(step.site):
            check_keep(self._cut, computed)
        return step.stateful(
            self._cut.spec(computed, keyed=bool(self._keys)),
            (self._keys,),
            self._schema(step, fields),
            "window",
            processing=clocked,
            timed=self._edge.node.timed or clocked or not self._cut.by_rows,
            **more,
        )

    def _step(self, name: str | None, was: str | None) -> StepBuilder:
        return StepBuilder(self._draft, self._edge, name, was)

    def _folded(self, step: StepBuilder, rows: pa.Schema) -> list[pa.Field]:
        """The columns of a row that stay: rows that are results of windows have bounds already."""
        added = {f.name for f in (*BOUNDS, *self._cut.fields())}
        fields = [f for f in rows if f.name not in added]
        if rows.names and not fields:
            step.report(
                PlanError(
                    "HR-PLAN-021",
                    "reduce has nothing to fold: every column is part of the key, or one that "
                    "the window gives anew",
                    "Use .agg(count=hr.count()) to count rows.",
                )
            )
        return fields

    def _schema(self, step: StepBuilder, fields: list[pa.Field]) -> pa.Schema:
        keys = step.key_fields(self._keys)
        if not fields or keys is None:
            return UNKNOWN
        after = self._cut.fields()
        problems = key_clashes(self._keys, [*BOUNDS, *after])
        step.report(*problems)
        if problems:
            return UNKNOWN
        before = [*keys, *BOUNDS]
        used = [f.name for f in (*before, *after)]
        step.report(*clashes(used, fields, "part of every window's result"))
        return pa.schema([*before, *(f for f in fields if f.name not in used), *after])


def _check_process(fn: object) -> None:
    if isinstance(fn, type) and issubclass(fn, WindowProcess):
        raise is_class(fn, "a process function")
    values = fn.values if isinstance(fn, WindowProcess) else {}
    by_task = [name for name, declared in values.items() if isinstance(declared, OperatorKind)]
    if by_task:
        raise PlanError(
            "HR-PROCESS-023",
            f"{type(fn).__name__}.{by_task[0]} is operator state, which a process function over "
            "windows cannot have",
            "Use hr.value, stored per key, or hr.window_value; or process rows without a window.",
        )
    own = isinstance(fn, WindowProcess) and getattr(fn.process, "__func__", None)
    if own is WindowProcess.process:
        raise PlanError(
            "HR-WINDOW-049",
            f"the window function {type(fn).__name__} has no process",
            "Give it a method process(self, key, window, rows) that returns rows.",
        )


def _check_arguments(fn: Any) -> None:
    """Three arguments, or four; not in another order, as far as their names show it."""
    if not takes(fn, 3) and not takes(fn, 4):
        raise PlanError(
            "HR-PLAN-028",
            "process calls its function with key, window, rows and, if it takes four, ctx; "
            f"it cannot call {title(fn) if callable(fn) else repr(fn)} so",
            "Write a function of (key, window, rows) or (key, window, rows, ctx).",
        )
    try:
        names = list(inspect.signature(fn).parameters)
    except (TypeError, ValueError):  # a builtin that has no signature
        return
    if names[1:2] == ["rows"] or names[2:3] == ["window"]:
        raise PlanError(
            "HR-WINDOW-050",
            f"{title(fn)} takes ({', '.join(names)}), but the window comes before the rows",
            "Write (key, window, rows).",
        )
