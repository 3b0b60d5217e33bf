"""What is computed over windows that fire once, as specs: from shared panes, and by rows.

`PaneWindows`, `FoldWindows` and `PaneFolds` are over time and say no more than the result;
`RowWindows` are bounded by rows. Those that may fire more than once are in `firing_spec.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.at_rest import described
from headrace.callables import PyFunction, title
from headrace.clock import pretty
from headrace.expr import Expr
from headrace.ops.agg.named import (
    Aggs,
    aggregates_code,
    aggregates_shape,
    aggregates_text,
)
from headrace.ops.contract import Operator, Place, Spec
from headrace.ops.fold import Folding, FoldSpec, FoldWindowOperator
from headrace.ops.panes.folds import PaneFoldOperator
from headrace.ops.panes.operator import PaneOperator
from headrace.ops.row_windows.operator import RowWindowOperator
from headrace.ops.window.aligned import Window
from headrace.ops.window.by_rows import RowWindow, column_of, needs_time
from headrace.ops.window.function import AggregateRows, FoldRows, WindowFunction
from headrace.ops.window.process import ProcessAggregates, ProcessRows, WindowProcess
from headrace.reads import columns_of_rows
from headrace.schema import ddl_type

WINDOW_END = "the end of a window"
Extras = tuple[tuple[str, Expr], ...]


@dataclass(frozen=True, eq=False)
class Processing:
    """A user's function that sees all rows of a window at once."""

    function: PyFunction
    value: pa.Schema  # the columns that it emits
    aggs: Aggs = ()  # what it sees instead of the rows
    aggregated: pa.Schema = field(default_factory=lambda: pa.schema([]))  # the columns of those

    @property
    def user_code(self) -> list[Callable[..., Any]]:
        return [self.function.fn, *aggregates_code(self.aggs)]

    @property
    def values(self) -> dict[str, Any]:
        """The values that it declares, per window and per key."""
        fn = self.function.fn
        return fn.values if isinstance(fn, WindowProcess) else {}

    @property
    def per_key(self) -> bool:
        """Whether it stores values per key, which outlast windows."""
        fn = self.function.fn
        return isinstance(fn, WindowProcess) and len(fn.kept(per_window=False)) > 0

    def __str__(self) -> str:
        over = f" of {aggregates_text(self.aggs)}" if self.aggs else ""
        return f"process {title(self.function.fn)}{over}"


Computed = Aggs | Folding | Processing  # named aggregates, reduce or fold, a function of all rows


class WindowSpec(Spec):
    """What all windows have in common."""

    kind = "window"
    keys_by_name = True
    has_late = True
    widens_keys = True

    @property
    def needs_time(self) -> bool:
        return True

    @property
    def emits_time(self) -> str:
        return WINDOW_END


@dataclass(frozen=True, eq=False)
class PaneWindows(WindowSpec):
    """Named aggregates over tumbling or sliding windows that fire once, from shared panes."""

    window: Window
    aggs: Aggs
    keep: int = 0  # ms for which panes are kept to be looked at, beyond the last window

    at_rest = "WindowAgg"
    sees_rows = False
    sends_partials = True
    stores_partials = True
    encodes_keys = True

    @property
    def aggregates(self) -> Aggs:
        return self.aggs

    def with_aggregates(self, aggs: Aggs) -> PaneWindows:
        return replace(self, aggs=aggs)

    @property
    def user_code(self) -> list[Any]:
        return aggregates_code(self.aggs)

    @property
    def runs_user_code(self) -> bool:
        return has_own(self.aggs)

    def detail(self, keyed_by: str, processing: bool) -> str:
        kept = f", kept {pretty(self.keep)}" if self.keep else ""
        panes = self.window.size // self.window.pane_size
        return f"{self.window}{kept}, {keyed_by}: {aggregates_text(self.aggs, panes)}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        aggregates = aggregates_shape(self.aggs, place.input)
        return {"kind": self.at_rest, "window": _plain(self.window), "aggregates": aggregates}

    def operator(self, place: Place) -> PaneOperator:
        aggs = dict(self.aggs)
        return PaneOperator(self.window, aggs, place.key, place.input, place.output, self.keep)


@dataclass(frozen=True, eq=False)
class FoldWindows(FoldSpec, WindowSpec):
    """`reduce` or `fold` over tumbling or sliding windows that fire once."""

    window: Window
    folding: Folding

    at_rest = "WindowFold"

    def detail(self, keyed_by: str, processing: bool) -> str:
        return f"{self.window}, {keyed_by}: {self.folding}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        return {"kind": self.at_rest, "window": _plain(self.window), **self.folding.shape()}

    def operator(self, place: Place) -> Operator:
        folder = self.folding.folder(place.input)
        return FoldWindowOperator(self.window, folder, place.key, place.input, place.output)


@dataclass(frozen=True, eq=False)
class PaneFolds(FoldWindows):
    """`reduce` or `fold` with a function that merges, from shared panes."""

    keep: int = 0

    at_rest = "PaneFold"

    def detail(self, keyed_by: str, processing: bool) -> str:
        how = ", sliding with inverse=" if self.folding.inverse else ", from shared panes"
        return f"{super().detail(keyed_by, processing)}{how}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        slides = {"slides": True} if self.folding.inverse else {}
        return super().state_shape(place) | slides

    def operator(self, place: Place) -> PaneFoldOperator:
        folding = self.folding
        assert folding.merge is not None
        inverse = folding.inverse.fn if folding.inverse else None
        functions = (folding.merge.fn, inverse)
        folder = folding.folder(place.input)
        return PaneFoldOperator(
            self.window, folder, functions, place.key, place.input, place.output, self.keep
        )


@dataclass(frozen=True, eq=False)
class ComputedWindows(WindowSpec):
    """Windows over which aggregates are computed, or a function that needs their rows."""

    computed: Computed
    extras: Extras  # columns that trigger, assigner, evictor or the window's end read

    @property
    def aggregates(self) -> Aggs:
        if isinstance(self.computed, Processing):
            return self.computed.aggs
        return self.computed if isinstance(self.computed, tuple) else ()

    def with_aggregates(self, aggs: Aggs) -> ComputedWindows:
        if isinstance(self.computed, Processing):
            return replace(self, computed=replace(self.computed, aggs=aggs))
        return replace(self, computed=aggs) if isinstance(self.computed, tuple) else self

    @property
    def needs_rows(self) -> bool:
        """Whether the rows of windows are stored: what is computed needs them."""
        return self.function is not None and not self.aggregates

    @property
    def function(self) -> PyFunction | None:
        return None if isinstance(self.computed, tuple) else self.computed.function

    @property
    def extra_columns(self) -> Extras:
        return self.extras

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return () if self.function is None else (self.function.fn,)

    @property
    def user_code(self) -> list[Any]:
        if isinstance(self.computed, tuple):
            return aggregates_code(self.computed)
        return [*self.computed.user_code]

    @property
    def python(self) -> str | None:
        return None if self.function is None else str(self.function)

    def computed_text(self) -> str:
        return (
            aggregates_text(self.computed)
            if isinstance(self.computed, tuple)
            else str(self.computed)
        )

    def computed_shape(self, place: Place) -> dict[str, Any]:
        aggregates = {"aggregates": aggregates_shape(self.aggregates, place.input)}
        if isinstance(self.computed, tuple):
            return aggregates
        values = self.computed.values if isinstance(self.computed, Processing) else {}
        stored = [[name, ddl_type(v.type), v.at_rest] for name, v in values.items()]
        rows = {"rows": described(place.input)} if self.needs_rows else {}
        return {**rows, "kept": stored, **aggregates}

    def over_rows(self, place: Place) -> WindowFunction:
        """What is computed over the rows of each window."""
        computed = self.computed
        if isinstance(computed, tuple):
            fields = [place.output.field(name) for name, _ in computed]
            return AggregateRows(dict(computed), pa.schema(fields))
        rows = pa.schema([f for f in place.input if f.name not in dict(self.extras)])
        if isinstance(computed, Folding):
            zero = computed.zero.fn if computed.zero else None
            return FoldRows(computed.function.fn, zero, rows, computed.value)
        fn = computed.function.fn
        if computed.aggs:
            aggregates = AggregateRows(dict(computed.aggs), computed.aggregated)
            return ProcessAggregates(fn, place.key, aggregates, computed.value)
        seen = rows.names if isinstance(fn, WindowProcess) else columns_of_rows(fn, rows.names, 2)
        return ProcessRows(fn, place.key, rows, computed.value, seen)


@dataclass(frozen=True, eq=False)
class RowWindows(ComputedWindows):
    """Windows that are bounded by rows, not by time."""

    window: RowWindow

    at_rest = "RowWindow"

    @property
    def needs_time(self) -> bool:
        return needs_time(self.window)

    @property
    def needs_rows(self) -> bool:
        return self.function is not None

    @property
    def sees_rows(self) -> bool:
        return self.function is not None

    @property
    def stores_partials(self) -> bool:
        return self.window.tumbles and self.function is None

    @property
    def ends_by(self) -> str | None:
        return column_of(self.window)

    def detail(self, keyed_by: str, processing: bool) -> str:
        clock = ", by processing time" if processing else ""
        return f"{self.window}{clock}, {keyed_by}: {self.computed_text()}"

    def state_shape(self, place: Place) -> dict[str, Any]:
        window = self.window.at_rest()
        return {"kind": self.at_rest, "window": window, **self.computed_shape(place)}

    def operator(self, place: Place) -> RowWindowOperator:
        function = dict(self.aggregates) if self.function is None else self.over_rows(place)
        return RowWindowOperator(self.window, function, place.key, place.input, place.output)


def has_own(aggs: Aggs) -> bool:
    """Whether there are aggregates of the user's own."""
    return any(agg.own is not None for _, agg in aggs)


def _plain(window: Window) -> dict[str, int]:
    return {"size": window.size, "slide": window.slide, "offset": window.offset}
