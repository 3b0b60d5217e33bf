"""The arguments of `window`: expressions resolved over the columns, each argument checked.

What does not go together is refused in `window_cut.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.api.handles import StepBuilder
from headrace.api.row_window_checks import check_rows
from headrace.api.window_cut import (
    Cut,
    check,
    check_assigner,
    check_ends,
    check_gap,
    check_patience,
)
from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.expr import Expr, lit
from headrace.expr.number_functions import when
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import GAP, NonMerging, OwnAssigner, Session, WindowAssigner
from headrace.ops.window.by_rows import RowWindow as RowSpec
from headrace.ops.window.by_rows import UntilWindow
from headrace.ops.window.by_rows import check as check_column
from headrace.ops.window.evictors import NEAR, Evictor, KeepBy, KeepNear
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
from headrace.plan.draft import uncertain
from headrace.plan.signature import check_takes
from headrace.schema import ddl_type


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
    keep: Duration = 0

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
                _kept(self.keep),
            )
            check_rows(step.edge, windows)
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


def _kept(keep: Duration) -> int:
    length = millis(keep)
    if length < 0:
        raise PlanError(
            "HR-WINDOW-061",
            f"keep={keep!r} is below zero",
            "Say for how long windows that are over can be looked at; not at all by default.",
        )
    return length


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
