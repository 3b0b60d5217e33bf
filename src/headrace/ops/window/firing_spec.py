"""What is computed over windows that may fire more than once, as specs.

`GeneralWindows` has every kind of window of time, triggers, lateness, evictors and what a
firing says of itself; `TriggeredRowWindows` has the same for windows that rows end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.at_rest import described
from headrace.callables import settings
from headrace.clock import pretty
from headrace.ops.agg.named import Aggregate
from headrace.ops.contract import Operator, Place
from headrace.ops.general_windows.operator import GeneralWindowOperator
from headrace.ops.row_windows.triggered import TriggeredRowOperator
from headrace.ops.window.assigners import OwnAssigner, WindowAssigner
from headrace.ops.window.by_rows import RowWindow, column_of, needs_time
from headrace.ops.window.evictors import Evictor, KeepBy
from headrace.ops.window.function import WindowFunction
from headrace.ops.window.spec import WINDOW_END, ComputedWindows, Processing, has_own
from headrace.ops.window.triggers import AtWatermark, Windowing
from headrace.schema import ddl_type

RESULT_TIMES = {
    "end": WINDOW_END,
    "earliest": "the earliest row of a window",
    "latest": "the latest row of a window",
}
Work = tuple[WindowFunction, Evictor | None] | None


@dataclass(frozen=True, eq=False)
class FiringWindows(ComputedWindows):
    """Windows with a trigger, a mode and an evictor."""

    windowing: Windowing
    evictor: Evictor | None
    keyed: bool

    @property
    def endless(self) -> bool:
        return isinstance(self.computed, Processing) and self.computed.per_key and self.keyed

    @property
    def bound(self) -> str:
        return "unbounded=True; otherwise use hr.window_value, which ends with its window."

    @property
    def runs_user_code(self) -> bool:
        return has_own(self.aggregates)

    @property
    def stores_rows(self) -> bool:
        """Whether the rows of windows are stored, for what is computed or for the evictor."""
        return self.needs_rows or self.evictor is not None

    @property
    def stores_partials(self) -> bool:
        return not self.stores_rows

    def work(self, place: Place) -> tuple[dict[str, Aggregate], Work]:
        """The aggregates that are partials, and what is computed over the rows or of those."""
        if self.stores_rows:
            return {}, (self.over_rows(place), self.evictor)
        sees_aggregates = self.function is not None
        return dict(self.aggregates), (self.over_rows(place), None) if sees_aggregates else None

    def remembered(self, place: Place) -> dict[str, str]:
        if self.windowing.mode != "retract":
            return {}
        aggs, work = self.work(place)
        names = work[0].schema.names if work else aggs
        return {name: ddl_type(place.output.field(name).type) for name in names}

    def firing(self, output: pa.Schema) -> str:
        windowing = self.windowing
        requests = [
            f"the trigger '{windowing.trigger}'" if windowing.trigger != AtWatermark() else "",
            f"lateness {pretty(windowing.lateness)}" if windowing.lateness else "",
            f"mode {windowing.mode!r}" if windowing.mode != "replace" else "",
            "an evictor" if self.evictor is not None else "",
        ]
        text = " and ".join(f for f in requests if f)
        return text or ("info=True" if "pane" in output.names else "no trigger")


@dataclass(frozen=True, eq=False)
class GeneralWindows(FiringWindows):
    """Windows of time of every kind."""

    at_rest = "AnyWindow"

    @property
    def emits_time(self) -> str:
        return RESULT_TIMES[self.windowing.result_time]

    @property
    def holds(self) -> int:
        return self.windowing.behind or 0

    @property
    def sees_rows(self) -> bool:
        own = isinstance(self.evictor, KeepBy) or isinstance(self.windowing.assigner, OwnAssigner)
        return self.needs_rows or own

    @property
    def sends_partials(self) -> bool:
        return not self.needs_rows and not self.windowing.per_row

    @property
    def runs_user_code(self) -> bool:
        return isinstance(self.windowing.assigner, OwnAssigner) or super().runs_user_code

    @property
    def lengths(self) -> dict[str, int]:
        return {"lateness": self.windowing.lateness}

    def detail(self, keyed_by: str, processing: bool) -> str:
        windowing = self.windowing
        parts = [str(windowing.assigner), f"by {'processing' if processing else 'event'} time"]
        parts += [f"{windowing.trigger}{', row by row' if windowing.per_row else ''}"]
        parts += [f"lateness {pretty(windowing.lateness)}"] if windowing.lateness else []
        parts += [windowing.mode] if windowing.mode != "replace" else []
        if windowing.result_time != "end":
            parts += [f"results at {RESULT_TIMES[windowing.result_time]}"]
        parts += [str(self.evictor)] if self.evictor else []
        return f"{', '.join(parts)}, {keyed_by}: {self.computed_text()}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        windowing = self.windowing
        assigner = windowing.assigner
        window: dict[str, Any] = {"assigner": assigner.at_rest(), "mode": windowing.mode}
        if isinstance(assigner, OwnAssigner):
            merges = {"merge()": "there"} if assigner.merges else {}
            window["settings"] = settings(assigner.user, WindowAssigner) | merges
        shape = {
            "kind": self.at_rest,
            "window": window,
            "watched": sorted(w.name + w.agg for w in windowing.trigger.watches()),
            "clocked": windowing.trigger.clocked,
        }
        if self.evictor is not None:  # it needs the rows themselves
            shape["rows"] = described(place.input)
        if windowing.per_row:  # then a round is what an epoch is otherwise
            shape["per_row"] = True
        if windowing.result_time != "end":
            shape["result_time"] = windowing.result_time
        return shape | self.computed_shape(place)

    def operator(self, place: Place) -> Operator:
        aggs, work = self.work(place)
        windowing = replace(self.windowing, over=place.over)
        return GeneralWindowOperator(windowing, aggs, work, place.key, place.input, place.output)


@dataclass(frozen=True, eq=False)
class TriggeredRowWindows(FiringWindows):
    """Windows that rows end, with more than one firing, or with state of their own."""

    window: RowWindow

    at_rest = "TriggeredRowWindow"

    @property
    def needs_time(self) -> bool:
        return needs_time(self.window)

    @property
    def ends_by(self) -> str | None:
        return column_of(self.window)

    @property
    def sees_rows(self) -> bool:
        return self.needs_rows or isinstance(self.evictor, KeepBy)

    @property
    def stores_rows(self) -> bool:
        return not self.window.tumbles or super().stores_rows  # rows leave the others by and by

    def detail(self, keyed_by: str, processing: bool) -> str:
        windowing = self.windowing
        parts = [str(self.window), *(["by processing time"] if processing else [])]
        over = str(windowing.trigger).replace(str(AtWatermark()), "at its last row", 1)
        parts += [f"{over}{', row by row' if windowing.per_row else ''}"]
        parts += [windowing.mode] if windowing.mode != "replace" else []
        parts += [str(self.evictor)] if self.evictor else []
        return f"{', '.join(parts)}, {keyed_by}: {self.computed_text()}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        trigger = self.windowing.trigger
        shape = {
            "kind": self.at_rest,
            "window": {"assigner": self.window.at_rest(), "mode": self.windowing.mode},
            "watched": sorted(w.name + w.agg for w in trigger.watches()),
            "clocked": trigger.clocked,
            "marked": trigger.marked,
        }
        if self.stores_rows:
            shape["rows"] = described(place.input)
        if self.windowing.per_row:
            shape["per_row"] = True
        return shape | self.computed_shape(place)

    def operator(self, place: Place) -> Operator:
        aggs, work = self.work(place)
        return TriggeredRowOperator(
            self.window,
            self.windowing,
            aggs,
            work,
            place.key,
            place.input,
            place.output,
            place.timed,
        )
