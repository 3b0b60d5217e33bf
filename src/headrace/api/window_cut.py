"""How a stream is cut into windows, and what windows cannot be.

A `Cut` knows which step the windows become: shared panes for tumbling or sliding windows that
fire once, the general one otherwise, or the one by rows. The
checks raise a `PlanError`; the caller knows where the user wrote it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.api.handles import PLAIN
from headrace.api.triggers import holds_watermark
from headrace.callables import PyFunction, site_of
from headrace.errors import PlanError
from headrace.expr import Expr
from headrace.kernel import never_true, value_of
from headrace.ops.contract import Spec
from headrace.ops.fold import Folding
from headrace.ops.watermarks import Ingestion
from headrace.ops.window.aligned import Window
from headrace.ops.window.assigners import AlignedAssigner, Everything, Session, WindowAssigner
from headrace.ops.window.by_rows import RowWindow as RowSpec
from headrace.ops.window.by_rows import UntilWindow, needs_time
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.firing_spec import RESULT_TIMES, GeneralWindows, TriggeredRowWindows
from headrace.ops.window.spec import (
    Computed,
    Extras,
    FoldWindows,
    PaneFolds,
    PaneWindows,
    Processing,
    RowWindows,
)
from headrace.ops.window.trigger_base import Trigger
from headrace.ops.window.triggers import AtMost, AtWatermark, Combined, OnRow, Windowing
from headrace.plan.nodes import Edge, Node, Read
from headrace.plan.signature import check_takes
from headrace.schema import TIMESTAMP

MODES = ("replace", "delta", "retract")
Function = Callable[[Any, Any], Any] | None
BOUNDS = (pa.field("window_start", TIMESTAMP), pa.field("window_end", TIMESTAMP))
_NUMBER = pa.field("window_number", pa.int64())


@dataclass(frozen=True)
class Cut:
    """Windows, as the arguments of `window` describe them."""

    window: Any
    trigger: Trigger
    lateness: int
    evictor: Evictor | None
    mode: str
    processing: bool
    info: bool
    extras: Extras
    may_lose: bool = False
    per_row: bool = False  # the trigger is asked for each row
    result_time: str = "end"
    keep: int = 0

    @property
    def by_rows(self) -> bool:
        return isinstance(self.window, RowSpec)

    @property
    def plain(self) -> bool:
        """Whether every window fires once, when it is over, and says no more than its result."""
        once = self.trigger == AtWatermark() and not self.lateness and self.mode == "replace"
        bare = self.evictor is None and not self.info and not self.per_row
        bare = bare and self.result_time == "end"
        return once and bare and isinstance(self.window, Window)

    def fields(self) -> list[pa.Field]:
        """The columns that say which firing a result is of."""
        firing = [("pane", pa.int32()), ("timing", pa.string()), ("final", pa.bool_())]
        number = [_NUMBER] if self.by_rows and self.info and not self.windowing().fires_once else []
        change = [pa.field("change", pa.string())] if self.mode == "retract" else []
        return [*number, *(pa.field(*f) for f in firing if self.info), *change]

    def spec(self, computed: Computed, keyed: bool) -> Spec:
        """The step that computes `computed` over these windows."""
        if self.by_rows:
            return self._of_rows(computed, keyed)
        if self.plain and isinstance(computed, tuple):
            return PaneWindows(self.window, computed, self.keep)
        if self.plain and isinstance(computed, Folding):
            if computed.merge:
                return PaneFolds(self.window, computed, self.keep)
            return FoldWindows(self.window, computed)
        return GeneralWindows(computed, self.extras, self.windowing(), self.evictor, keyed)

    def _of_rows(self, computed: Computed, keyed: bool) -> Spec:
        """Of windows that rows end: the plain one, unless there is more to remember."""
        windowing = self.windowing()
        stores = isinstance(computed, Processing) and bool(computed.values)
        plain = windowing.fires_once and self.mode == "replace"
        if plain and self.evictor is None and not stores:
            return RowWindows(computed, self.extras, self.window)
        return TriggeredRowWindows(
            computed, self.extras, windowing, self.evictor, keyed, self.window
        )

    def windowing(self) -> Windowing:
        """How rows are cut by time, and when windows show their results."""
        assigner = AlignedAssigner(self.window) if isinstance(self.window, Window) else self.window
        if self.by_rows:  # to the watermark, they have no end
            assigner = Everything()
        loses = self.may_lose and not self.trigger.safe
        return Windowing(
            assigner,
            self.trigger,
            self.lateness,
            self.mode,
            loses,
            self.per_row,
            self.result_time,
        )

    @property
    def clocked(self) -> bool:
        """Whether they go by processing time."""
        return self.processing and (not self.by_rows or needs_time(self.window))


def check(cut: Cut, time: str | None) -> None:
    """Refuse what does not go together."""
    window, trigger = cut.window, cut.trigger
    if cut.mode not in MODES:
        raise PlanError(
            "HR-WINDOW-035",
            f"mode={cut.mode!r} is unknown",
            'Write "replace" (each firing shows all), "delta" (only what is new) or '
            '"retract" (the old result out, the new one in).',
        )
    if time not in (None, "event", "processing"):
        raise PlanError(
            "HR-WINDOW-036",
            f"time={time!r} is unknown",
            'Write time="event" or time="processing"; ingestion time is read(time=...).',
        )
    if cut.result_time not in RESULT_TIMES:
        raise PlanError(
            "HR-WINDOW-055",
            f"result_time={cut.result_time!r} is unknown",
            'Write "end", which is usual, or "earliest" or "latest": of the rows of the window.',
        )
    if isinstance(window, RowSpec) and not needs_time(window) and time == "event":
        raise PlanError(
            "HR-WINDOW-045",
            f"{window} cannot go by event time: which rows share a window depends on the order "
            "in which they come",
            "Leave time= out; or bound the window by time: sliding(rows=100, every='10s').",
        )
    if not cut.by_rows:
        _check_result_time(cut)
    if cut.lateness and time == "processing":
        raise PlanError(
            "HR-WINDOW-038",
            "lateness= has no meaning in processing time, where nothing is late",
            "Leave it out, or use event time.",
        )
    if isinstance(window, Everything) and cut.lateness:
        raise PlanError(
            "HR-WINDOW-039",
            "lateness= has no meaning for a window that does not end",
            "Leave it out.",
        )
    if (dead := _dead(trigger)) is not None:
        raise PlanError(
            "HR-TRIGGER-014",
            f"the trigger ({dead}) can never fire",
            "Give a condition that a row can fulfil, or leave this trigger out.",
        )
    if not trigger.safe and not cut.may_lose and not isinstance(window, Everything):
        raise PlanError(
            "HR-TRIGGER-010",
            f"the trigger ({trigger}) can lose rows: what it has not shown when the window is "
            "over is never shown",
            _safe_alternative(trigger),
        )


def sharing(cut: Cut, folding: Folding, merge: Function, inverse: Function) -> Folding:
    """The fold with its functions over panes; refused where no windows share panes."""
    _check_merge(cut, merge, inverse)
    return replace(folding, merge=_function("merge", merge), inverse=_function("inverse", inverse))


def _function(name: str, fn: Function) -> PyFunction | None:
    if fn is None:
        return None
    check_takes(fn, 2, f"{name}=")
    return PyFunction(fn, site_of(fn), PLAIN)


def _check_merge(cut: Cut, merge: object, inverse: object) -> None:
    if inverse is not None and merge is None:
        raise PlanError(
            "HR-WINDOW-053",
            "inverse= is there without merge=",
            "Pass both: merge= adds the pane that enters a window, inverse= subtracts the one "
            "that leaves it, as in reduce(add, merge=add, inverse=subtract).",
        )
    if merge is not None and not cut.plain:
        raise PlanError(
            "HR-WINDOW-052",
            f"merge= has no meaning for {cut.window}, as it is used here: only tumbling and "
            "sliding windows of time that fire once are made of panes",
            "Leave merge= out, or leave out trigger=, lateness=, evict=, mode= and info=.",
        )
    if inverse is not None and cut.window.tumbles:
        raise PlanError(
            "HR-WINDOW-054",
            f"inverse= has no meaning for {cut.window}: such windows share no rows",
            "Leave inverse= out, or use hr.sliding.",
        )


def _check_result_time(cut: Cut) -> None:
    """Refuse results whose time could not be what it should, or would be late for what follows."""
    asked = f'result_time="{cut.result_time}"'
    if cut.result_time != "end" and cut.processing:
        raise PlanError(
            "HR-WINDOW-056",
            f"{asked} has no meaning in processing time, where rows have no time of their own",
            "Leave it out, or use event time.",
        )
    if cut.result_time != "end" and cut.mode == "retract":
        raise PlanError(
            "HR-WINDOW-057",
            f'{asked} cannot be combined with mode="retract": another row may change the time, '
            "and a result is retracted at the time at which it was emitted",
            'Leave result_time= out, or use mode="replace" or "delta".',
        )
    if cut.windowing().behind is None:
        raise PlanError(
            "HR-WINDOW-058",
            f"{asked} would make results of {cut.window} late for the next step: such a window may "
            "be of any length, so there is no saying how long that step would have to wait",
            "Leave it out; the earliest and the latest time are hr.min and hr.max of the column.",
        )


def _dead(trigger: Trigger) -> Trigger | None:
    """What can never fire of what has to: the trigger, or `early` or `late` in it."""
    match trigger:
        case OnRow(_, predicate):
            never = isinstance(predicate, Expr) and never_true(predicate)
            return trigger if never else None
        case AtWatermark(early, late):
            return next(filter(None, (_dead(t) for t in (early, late) if t)), None)
        case AtMost(_, of, _):
            return _dead(of)
        case Combined(parts, every):
            dead = [_dead(part) for part in parts]
            return next(filter(None, dead), None) if every or all(dead) else None
    return None


def _safe_alternative(trigger: Trigger) -> str:
    """How the rows would be kept that this trigger can lose."""
    if holds_watermark(trigger):
        return (
            "Write t.at_watermark() by itself, or t.any_of(t.at_watermark(), ...): they show all "
            "when the window is over; or pass may_lose=True."
        )
    return "Put it into t.at_watermark(early=...), or pass may_lose=True."


def check_patience(edge: Edge, cut: Cut, time: str | None) -> None:
    """Refuse to wait where nothing is late, and a trigger for late rows without lateness."""
    window, trigger, lateness = cut.window, cut.trigger, cut.lateness
    ingestion = _by_ingestion(edge.node)
    if not lateness and _fires_late(trigger):
        can = time != "processing" and not ingestion
        can = can and not isinstance(window, Everything | RowSpec)
        raise PlanError(
            "HR-TRIGGER-012",
            f"the trigger ({trigger}) says what to do with late rows, but without lateness= a "
            "window is never late: it is gone when it is over",
            'Say how long to wait, as in lateness="5m"; or leave late= out.'
            if can
            else "Leave late= out: nothing is late here.",
        )
    if lateness and ingestion:
        raise PlanError(
            "HR-WINDOW-038",
            "lateness= has no meaning in ingestion time, where nothing is late",
            "Leave it out, or use event time.",
        )


def _fires_late(trigger: Trigger) -> bool:
    match trigger:
        case AtWatermark(_, late):
            return late is not None
        case Combined(parts, _):
            return any(map(_fires_late, parts))
        case AtMost(_, of, _):
            return _fires_late(of)
    return False


def _by_ingestion(node: Node) -> bool:
    """Whether all rows of a step have the time at which they were read."""
    if isinstance(node, Read):
        return isinstance(node.time, Ingestion)
    plain = bool(node.inputs) and not node.stateful
    return plain and all(_by_ingestion(edge.node) for edge in node.inputs)


def check_gap(gap: Expr) -> None:
    """Refuse a gap that is the same for every row and not above zero."""
    if gap.columns:
        return
    length = value_of(gap.cast("bigint"))
    if length is not None:
        Session(length)


def check_ends(window: RowSpec, condition: Expr) -> None:
    """Refuse a window that no row can end."""
    if isinstance(window, UntilWindow) and never_true(condition):
        raise PlanError(
            "HR-WINDOW-051",
            f"no row ever ends the window: {condition.sql()} is never true",
            "Give hr.until a condition that a row can fulfil.",
        )


def check_keep(cut: Cut, computed: Computed) -> None:
    """Refuse to keep results of windows that are not made of panes."""
    panes = isinstance(computed, tuple) or (isinstance(computed, Folding) and computed.merge)
    if cut.keep and not (cut.plain and panes):
        raise PlanError(
            "HR-WINDOW-060",
            f"keep= has no meaning for {cut.window}, as it is used here: only tumbling and sliding "
            "windows of time that fire once, with aggregates, are stored as panes",
            "Leave keep= out, and write the results to an output.",
        )


def check_aggregates(aggs: object) -> None:
    """Refuse what is not one aggregate or more by name."""
    if not isinstance(aggs, Mapping) or not aggs:
        raise PlanError(
            "HR-WINDOW-059",
            f"agg={aggs!r} names no aggregates",
            'Write agg={"n": hr.count(), "total": hr.sum("value")}; or leave it out: then the '
            "function gets the rows.",
        )


def check_assigner(window: object) -> None:
    """Refuse a class instead of its object, and one that places no row."""
    if isinstance(window, type) and issubclass(window, WindowAssigner):
        raise is_class(window, "a window")
    own = isinstance(window, WindowAssigner) and getattr(window.assign, "__func__", None)
    if own is WindowAssigner.assign:
        raise PlanError(
            "HR-WINDOW-047",
            f"the window {type(window).__name__} has no assign",
            "Give it a method assign(self, time, row) that returns (start, end) in ms.",
        )


def is_class(kind: type, what: str) -> PlanError:
    return PlanError(
        "HR-WINDOW-048",
        f"{kind.__name__} is a class, not {what}",
        f"Make an object of it: {kind.__name__}().",
    )
