"""How a stream is cut into windows: what the user said, checked and made plain.

A `Cut` knows which node the windows become: shared panes where nothing more is asked than
tumbling or sliding windows that fire once, the general one otherwise, or the one by rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.api.step_builder import Adding
from headrace.api.window_checks import (
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
from headrace.ops.contract import Spec
from headrace.ops.running.spec import Folding
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import GAP, AlignedAssigner, NonMerging, Session
from headrace.ops.window.by_rows import RowWindow as RowSpec
from headrace.ops.window.by_rows import UntilWindow, needs_time
from headrace.ops.window.by_rows import check as check_column
from headrace.ops.window.evictors import NEAR, Evictor, KeepBy, KeepNear
from headrace.ops.window.own import OwnAssigner, WindowAssigner
from headrace.ops.window.spec import (
    Computed,
    Extras,
    FoldWindows,
    GeneralWindows,
    PaneWindows,
    RowWindows,
)
from headrace.ops.window.trigger_base import Trigger
from headrace.ops.window.triggers import (
    AtMost,
    AtWatermark,
    Combined,
    OnDelta,
    OnRow,
    Windowing,
)
from headrace.plan import columns as cols
from headrace.plan.draft import uncertain
from headrace.plan.signature import check_takes
from headrace.schema import ddl_type


@dataclass(frozen=True)
class Cut:
    """Windows as they were asked for."""

    window: Any
    trigger: Trigger
    lateness: int
    evictor: Evictor | None
    mode: str
    processing: bool
    info: bool
    extras: Extras
    may_lose: bool = False

    @property
    def by_rows(self) -> bool:
        return isinstance(self.window, RowSpec)

    @property
    def plain(self) -> bool:
        """Whether every window fires once, when it is over, and says no more than its result."""
        once = self.trigger == AtWatermark() and not self.lateness and self.mode == "replace"
        bare = self.evictor is None and not self.info
        return once and bare and isinstance(self.window, Window)

    def fields(self) -> list[pa.Field]:
        """The columns that say which firing a result is of."""
        found = [("pane", pa.int32()), ("timing", pa.string()), ("final", pa.bool_())]
        change = [pa.field("change", pa.string())] if self.mode == "retract" else []
        return [*(pa.field(*f) for f in found if self.info), *change]

    def spec(self, computed: Computed, keyed: bool) -> Spec:
        """The step that computes `computed` over these windows."""
        if self.by_rows:
            return RowWindows(computed, self.extras, self.window)
        if self.plain and isinstance(computed, tuple):
            return PaneWindows(self.window, computed)
        if self.plain and isinstance(computed, Folding):
            return FoldWindows(self.window, computed)
        assigner = AlignedAssigner(self.window) if isinstance(self.window, Window) else self.window
        loses = self.may_lose and not self.trigger.safe
        windowing = Windowing(assigner, self.trigger, self.lateness, self.mode, loses)
        return GeneralWindows(computed, self.extras, windowing, self.evictor, keyed)

    @property
    def clocked(self) -> bool:
        """Whether they go by processing time."""
        return self.processing and (not self.by_rows or needs_time(self.window))


def cut(
    at: Adding,
    window: object,
    time: str | None,
    trigger: object,
    lateness: Duration,
    evict: object,
    mode: str,
    info: bool | None,
    may_lose: bool,
) -> Cut:
    """What was asked for; problems are reported, and a plain window stands in."""
    extras: dict[str, Expr] = {}
    with at.draft.attempt(at.site):
        window = _window(at, window, extras)
        fires = _trigger(at, trigger, extras)
        late = _lateness(lateness)
        evictor = _evictor(at, evict, extras)
        check(window, fires, late, evictor, mode, time, may_lose)
        check_patience(at.edge, window, fires, late, time)
        said = trigger is not None or late > 0 or mode != "replace"
        return Cut(
            window,
            fires,
            late,
            evictor,
            mode,
            time == "processing",
            said if info is None else info,
            tuple(extras.items()),
            may_lose,
        )
    return Cut(Window(1, 1), AtWatermark(), 0, None, "replace", False, False, ())


def _window(at: Adding, window: object, extras: dict[str, Expr]) -> Any:
    if isinstance(window, Session) and not isinstance(window.gap, int):
        gap = gap_of(at, window, at.schema)
        extras[GAP] = gap.cast("bigint")
        return Session(gap)
    if isinstance(window, RowSpec):  # bounded by rows: the plan makes columns of expressions
        return _row_window(at, window, extras)
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


def gap_of(at: Adding, window: Session, schema: pa.Schema) -> Expr:
    """A gap that differs from row to row, over rows of this kind."""
    gap = _number(at, window.gap, "the gap of a session", whole=True, schema=schema)
    check_gap(gap)
    return gap


def _row_window(at: Adding, window: Any, extras: dict[str, Expr]) -> Any:
    spec = getattr(window, "column", None)
    if spec is None:
        return window
    if isinstance(spec, str) and spec in at.schema.names:
        if not uncertain(at.schema, frozenset({spec})):
            check_column(window, at.schema)
        return window
    until = isinstance(window, UntilWindow)
    found = at.condition(spec, "until") if until else _number(at, spec, "a delta window")
    if found is not None:
        check_ends(window, found)
        extras["$cut"] = found
    return replace(window, column="$cut")


def _trigger(at: Adding, trigger: object, extras: dict[str, Expr]) -> Trigger:
    if trigger is None:
        return AtWatermark()
    if not isinstance(trigger, Trigger):
        raise PlanError(
            "HR-TRIGGER-001",
            f"trigger={trigger!r} is not a trigger",
            "Make one with headrace.triggers: t.at_watermark(early=t.every('10s')).",
        )
    return _named(at, trigger, extras, "$times")


def _named(at: Adding, trigger: Trigger, extras: dict[str, Expr], place: str) -> Trigger:
    """The trigger with expressions for what the user wrote, under names that stay."""

    def inner(part: Trigger | None, number: int) -> Any:
        return part and _named(at, part, extras, f"{place}{number}")

    match trigger:
        case AtWatermark(early, late):
            return AtWatermark(inner(early, 0), inner(late, 1))
        case Combined(parts, every):
            return Combined(tuple(inner(t, i) for i, t in enumerate(parts)), every)
        case AtMost(_, of, most):
            return AtMost(place, inner(of, 0), most)
        case OnRow(_, predicate):
            name = f"$t{len(extras)}"
            found = at.condition(predicate, "on_row")
            if found is None:
                return trigger
            extras[name] = when(found, True)  # null, not false: so that counting counts the true
            return OnRow(name, found)
        case OnDelta(_, column, threshold):
            name = f"$t{len(extras)}"
            found = _number(at, column, "on_delta")
            extras[name] = extras[f"{name}.first"] = _double(at, found)
            return OnDelta(name, found, threshold)
    return trigger


def _number(
    at: Adding, spec: object, what: str, whole: bool = False, schema: pa.Schema | None = None
) -> Expr:
    schema = at.schema if schema is None else schema
    expr = cols.expression(at.draft, spec, schema, at.site)
    if expr is None:  # reported already
        return lit(1)
    kind = cols.typed(at.draft, {"x": expr}, schema, at.site).schema.field("x").type
    fraction = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    good = pa.types.is_integer(kind) or (fraction and not whole)
    if not good and not pa.types.is_null(kind):
        raise PlanError(
            "HR-WINDOW-009",
            f"{what} needs {'whole milliseconds' if whole else 'a number'}, but {expr.sql()} is "
            f"{ddl_type(kind)}",
            "Cast it, or name another column.",
        )
    return expr


def _double(at: Adding, expr: Expr) -> Expr:
    """A number that is compared as a double; a decimal is made one."""
    kind = cols.typed(at.draft, {"x": expr}, at.schema, at.site).schema.field("x").type
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


def _evictor(at: Adding, evict: object, extras: dict[str, Expr]) -> Evictor | None:
    if evict is None:
        return None
    if not isinstance(evict, Evictor):
        raise PlanError(
            "HR-WINDOW-034",
            f"evict={evict!r} is not an evictor",
            "Write hr.keep_last(rows=100), hr.keep_last('10s'), hr.keep_near(...) or hr.keep.",
        )
    if isinstance(evict, KeepNear):
        extras[NEAR] = _double(at, _number(at, evict.column, "keep_near"))
    if isinstance(evict, KeepBy):
        check_takes(evict.fn, 1, "hr.keep")
    return evict
