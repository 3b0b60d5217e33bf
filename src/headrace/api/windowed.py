"""Streams cut into windows: what is computed over each window.

The result has the key columns, `window_start`, `window_end`, then what was computed; its
event time is the last millisecond of the window, so windows can follow windows; or, with
`result_time`, that of a row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pyarrow as pa

from headrace.api.handles import PLAIN, AnyStream, StepBuilder
from headrace.api.stateful import finished, fold_function, reduce_function, split_names
from headrace.api.window_cut import (
    BOUNDS,
    Cut,
    check,
    check_assigner,
    check_ends,
    check_gap,
    check_patience,
    is_class,
    sharing,
)
from headrace.callables import PyFunction, site_of, title
from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.expr import Expr, lit
from headrace.expr.number_functions import when
from headrace.hints import named_arguments, no_such_name
from headrace.ops.agg.named import Aggregate
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import GAP, NonMerging, OwnAssigner, Session, WindowAssigner
from headrace.ops.window.by_rows import RowWindow as RowSpec
from headrace.ops.window.by_rows import UntilWindow
from headrace.ops.window.by_rows import check as check_column
from headrace.ops.window.evictors import NEAR, Evictor, KeepBy, KeepNear
from headrace.ops.window.process import WindowProcess, takes
from headrace.ops.window.spec import Computed, Processing
from headrace.ops.window.trigger_base import Trigger
from headrace.ops.window.triggers import (
    AtMost,
    AtWatermark,
    Combined,
    OnDelta,
    OnRow,
    PerRow,
)
from headrace.plan import columns as cols
from headrace.plan.aggregation import aggregation, named_specs
from headrace.plan.columns import clashes, key_clashes
from headrace.plan.draft import UNKNOWN, Draft, uncertain
from headrace.plan.nodes import Edge
from headrace.plan.signature import any_schema, check_takes
from headrace.schema import SchemaLike, ddl_type

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
        **aggs: Aggregate | Expr | str,
    ) -> ResultT:
        """Named aggregates of each window: `agg(celsius=hr.mean("celsius"), n=hr.count())`.

        As SQL text or as arithmetic, too: `agg("sum(v) / count(*) as mean")`,
        `agg(spread=hr.max("v") - hr.min("v"))`.
        """
        step_name, earlier_name, named = split_names(name, was, aggs)
        step = self._step(step_name, earlier_name)
        specs = named_specs(self._draft, texts, named, step.site)
        around = [*self._keys, *(f.name for f in BOUNDS)]
        what = aggregation(self._draft, specs, step.schema, step.site, around)
        edge = self._add(step, what.fields, what.aggs)
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
        schema: SchemaLike | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> ResultT:
        """All rows of each window at once: fn(key, window, rows) returns a row, or rows.

        `window` has `start`, `end` (ms), `pane`, `timing` and `final`; `rows` are in event-time
        order. With a fourth argument, `ctx`, it gets what has `watermark`, `clock` and
        `count(name, n)`. A `WindowProcess` may store values per key and window.
        """
        step = self._step(name, was)
        method = fn.process if isinstance(fn, WindowProcess) else fn
        with self._draft.attempt(step.site):
            _check_process(fn)
            _check_arguments(method)
            if isinstance(fn, WindowProcess) and fn.values and self._cut.by_rows:
                raise PlanError(
                    "HR-WINDOW-044",
                    f"{type(fn).__name__} stores values, which windows of rows cannot",
                    "Keep them in a keyed process function after it.",
                )
            if self._cut.mode == "retract":
                raise PlanError(
                    "HR-WINDOW-040",
                    "process cannot take back what it gave",
                    'Use mode="replace" or "delta", or aggregates instead of process.',
                )
        value = step.attempt(lambda: any_schema(method, schema, "process"))
        function = PyFunction(cast("Any", fn), site_of(method), PLAIN)
        return self._result(step, list(value), Processing(function, value), unbounded)

    def _result(
        self, step: StepBuilder, fields: list[pa.Field], computed: Computed, unbounded: bool = False
    ) -> ResultT:
        return self._kind(self._draft, self._add(step, fields, computed, unbounded))

    def _add(
        self, step: StepBuilder, fields: list[pa.Field], computed: Computed, unbounded: bool = False
    ) -> Edge:
        clocked = self._cut.clocked
        return step.stateful(
            self._cut.spec(computed, keyed=bool(self._keys)),
            (self._keys,),
            self._schema(step, fields),
            "window",
            processing=clocked,
            unbounded=unbounded,
            timed=self._edge.node.timed or clocked or not self._cut.by_rows,
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


# The arguments of `window`: expressions resolved over the columns, each argument checked. What
# does not go together is refused in `window_cut.py`.


@dataclass(frozen=True)
class WindowArguments:
    """The arguments of `window`, as the user wrote them."""

    window: Any
    time: str | None
    trigger: Any
    lateness: Duration
    evict: Any
    mode: str
    info: bool | None
    may_lose: bool
    result_time: str = "end"

    def cut(self, step: StepBuilder) -> Cut:
        """The windows; problems are reported, and plain windows stand in."""
        extras: dict[str, Expr] = {}
        with step.draft.attempt(step.site):
            window = _window(step, self.window, extras)
            per_row = isinstance(self.trigger, PerRow)
            trigger = _trigger(step, self.trigger.of if per_row else self.trigger, extras)
            late = _lateness(self.lateness)
            evictor = _evictor(step, self.evict, extras)
            windows = Cut(
                window,
                trigger,
                late,
                evictor,
                self.mode,
                self.time == "processing",
                self._informs(late),
                tuple(extras.items()),
                self.may_lose,
                per_row,
                self.result_time,
            )
            check(windows, self.time)
            check_patience(step.edge, windows, self.time)
            return windows
        return Cut(Window(1, 1), AtWatermark(), 0, None, "replace", False, False, ())

    def _informs(self, lateness: int) -> bool:
        """Whether results say which firing they are of: by default where there may be several."""
        several = self.trigger is not None or lateness > 0 or self.mode != "replace"
        return several if self.info is None else self.info


def _window(step: StepBuilder, window: object, extras: dict[str, Expr]) -> Any:
    if isinstance(window, Session) and not isinstance(window.gap, int):
        gap = gap_of(step, window, step.schema)
        extras[GAP] = gap.cast("bigint")
        return Session(gap)
    if isinstance(window, RowSpec):  # bounded by rows: the plan makes columns of expressions
        return _row_window(step, window, extras)
    check_assigner(window)
    if isinstance(window, WindowAssigner):
        return OwnAssigner(window)
    if isinstance(window, Window | Session | NonMerging):
        return window
    raise PlanError(
        "HR-PLAN-022",
        f"{window!r} is not a window",
        'Write hr.tumbling("5s"), hr.sliding("60s", every="5s"), hr.session("10m") ...',
    )


def gap_of(step: StepBuilder, window: Session, schema: pa.Schema) -> Expr:
    """A gap that differs from row to row, over rows of this kind."""
    gap = _number(step, window.gap, "the gap of a session", whole=True, schema=schema)
    check_gap(gap)
    return gap


def _row_window(step: StepBuilder, window: Any, extras: dict[str, Expr]) -> Any:
    spec = getattr(window, "column", None)
    if spec is None:
        return window
    if isinstance(spec, str) and spec in step.schema.names:
        if not uncertain(step.schema, frozenset({spec})):
            check_column(window, step.schema)
        return window
    until = isinstance(window, UntilWindow)
    expr = step.condition(spec, "until") if until else _number(step, spec, "a delta window")
    if expr is not None:
        check_ends(window, expr)
        extras["$cut"] = expr
    return replace(window, column="$cut")


def _trigger(step: StepBuilder, trigger: object, extras: dict[str, Expr]) -> Trigger:
    if trigger is None:
        return AtWatermark()
    if not isinstance(trigger, Trigger):
        raise PlanError(
            "HR-TRIGGER-001",
            f"trigger={trigger!r} is not a trigger",
            "Make one with headrace.triggers: t.at_watermark(early=t.every('10s')).",
        )
    return _named(step, trigger, extras, "$times")


def _named(step: StepBuilder, trigger: Trigger, extras: dict[str, Expr], place: str) -> Trigger:
    """The trigger with expressions for what the user wrote, under names that stay."""

    def inner(part: Trigger | None, number: int) -> Any:
        return part and _named(step, part, extras, f"{place}{number}")

    match trigger:
        case AtWatermark(early, late):
            return AtWatermark(inner(early, 0), inner(late, 1))
        case Combined(parts, every):
            return Combined(tuple(inner(t, i) for i, t in enumerate(parts)), every)
        case AtMost(_, of, most):
            return AtMost(place, inner(of, 0), most)
        case OnRow(_, predicate):
            name = f"$t{len(extras)}"
            expr = step.condition(predicate, "on_row")
            if expr is None:
                return trigger
            extras[name] = when(expr, True)  # null, not false: so that counting counts the true
            return OnRow(name, expr)
        case OnDelta(_, column, threshold):
            name = f"$t{len(extras)}"
            expr = _number(step, column, "on_delta")
            extras[name] = extras[f"{name}.first"] = _double(step, expr)
            return OnDelta(name, expr, threshold)
    return trigger


def _number(
    step: StepBuilder, spec: object, what: str, whole: bool = False, schema: pa.Schema | None = None
) -> Expr:
    schema = step.schema if schema is None else schema
    expr = cols.expression(step.draft, spec, schema, step.site)
    if expr is None:  # reported already
        return lit(1)
    kind = cols.typed(step.draft, {"x": expr}, schema, step.site).schema.field("x").type
    fraction = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    valid = pa.types.is_integer(kind) or (fraction and not whole)
    if not valid and not pa.types.is_null(kind):
        raise PlanError(
            "HR-WINDOW-009",
            f"{what} needs {'whole milliseconds' if whole else 'a number'}, but {expr.sql()} is "
            f"{ddl_type(kind)}",
            "Cast it, or name another column.",
        )
    return expr


def _double(step: StepBuilder, expr: Expr) -> Expr:
    """A number that is compared as a double; a decimal is made one."""
    kind = cols.typed(step.draft, {"x": expr}, step.schema, step.site).schema.field("x").type
    return expr.cast("double") if pa.types.is_decimal(kind) else expr


def _lateness(lateness: Duration) -> int:
    late = millis(lateness)
    if late < 0:
        raise PlanError(
            "HR-WINDOW-033",
            f"lateness={lateness!r} is below zero",
            "Say how long a window waits for late rows; nothing by default.",
        )
    return late


def _evictor(step: StepBuilder, evict: object, extras: dict[str, Expr]) -> Evictor | None:
    if evict is None:
        return None
    if not isinstance(evict, Evictor):
        raise PlanError(
            "HR-WINDOW-034",
            f"evict={evict!r} is not an evictor",
            "Write hr.keep_last(rows=100), hr.keep_last('10s'), hr.keep_near(...) or hr.keep.",
        )
    if isinstance(evict, KeepNear):
        extras[NEAR] = _double(step, _number(step, evict.column, "keep_near"))
    if isinstance(evict, KeepBy):
        check_takes(evict.fn, 1, "hr.keep")
    return evict
