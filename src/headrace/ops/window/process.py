"""Process functions over windows: the user's code sees all rows of a window at once.

A function, or an object of a class that declares values: some per key, some per window. A call
that raises leaves both as they were, and counts nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Fault
from headrace.ops.keys import key_values
from headrace.ops.process.state_kinds import ValueState, value
from headrace.ops.user_metrics import UserMetrics, WithMetrics
from headrace.ops.window.function import (
    AggregateRows,
    StoredValues,
    WindowedRows,
    WindowResults,
    WindowRows,
    each_window,
    flattened,
)
from headrace.rows import RowCopier, as_rows, collector_paused, pylist, row_copier, table_of
from headrace.state_copies import state_copy


@dataclass(frozen=True, slots=True)
class FiredWindow:
    """The window that a process function is called for."""

    start: int | None  # ms; None for a window without bounds
    end: int | None
    pane: int  # how often it has fired before
    timing: str  # "early", "on time", "late"
    final: bool


class WindowCall(WithMetrics):
    """The `ctx` of a process function: one for all calls of a batch.

    Its names are those of the `ctx` of keyed process functions.
    """

    __slots__ = ("clock", "metrics", "watermark")

    def __init__(self, watermark: int, clock: int) -> None:
        self.watermark, self.clock = watermark, clock
        self.metrics = UserMetrics()


@dataclass(frozen=True, slots=True, eq=False)
class WindowValue(ValueState):
    """A value kept per window, as long as the window is."""

    at_rest = "WindowValue"


def window_value(kind: Any, default: Any = None) -> Any:
    """Declare a value kept per window: `shown = hr.window_value(int, default=0)`."""
    declared = value(kind, default)
    return WindowValue(declared.type, declared.default, declared.kind)


class WindowProcess:
    """Subclass me: declare values, then `process(self, key, window, rows)`, or with `ctx`.

    `hr.value` is kept per key, for good; `hr.window_value` per window.
    """

    values: ClassVar[dict[str, ValueState]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        own = {n: v for n, v in vars(cls).items() if isinstance(v, ValueState)}
        for name in own:
            delattr(cls, name)
        cls.values = {**cls.values, **own}

    def process(self, *args: Any, **kwargs: Any) -> Any:  # so that both forms may stand for it
        """The rows for a window; it is called with `ctx` as well if it takes four arguments."""
        raise NotImplementedError

    @classmethod
    def kept(cls, per_window: bool) -> pa.Schema:
        """The declared values as columns."""
        return pa.schema(
            [(n, v.type) for n, v in cls.values.items() if isinstance(v, WindowValue) == per_window]
        )


def takes(fn: Any, count: int) -> bool:
    """Whether a process function can be called with so many arguments, as far as it tells."""
    if not callable(fn) or isinstance(fn, type):
        return callable(fn)
    try:
        inspect.signature(fn).bind(*[None] * count)
    except ValueError:  # a builtin that does not tell its signature
        return True
    except TypeError:
        return False
    return True


class ProcessRows:
    """A user's function, called once per firing with all rows of the window.

    It is `fn(key, window, rows)`, or `fn(key, window, rows, ctx)` if it cannot do without.
    """

    def __init__(
        self,
        fn: Any,
        keys: Sequence[str],
        row: pa.Schema,
        schema: pa.Schema,
        seen: Sequence[str] | None = None,
    ) -> None:
        self._fn, self._keys, self.schema = fn, list(keys), schema
        self._copier = row_copier(schema)
        self._seen = row.names if seen is None else seen  # all, or what it surely looks at
        self.columns = self._names = row.names  # what it sees of a row
        self._stores = isinstance(fn, WindowProcess) and bool(fn.values)
        self._method = fn.process if isinstance(fn, WindowProcess) else fn
        self._takes_context = not takes(self._method, 3)

    def value_schema(self, per_window: bool) -> pa.Schema:
        return self._fn.kept(per_window) if self._stores else pa.schema([])

    @collector_paused()
    def over(self, windowed: WindowedRows) -> WindowResults:
        keys, windows = self._key_values(windowed), self._windows(windowed)
        if self._stores:
            assert windowed.memory is not None
            return self._remembering(windowed, windowed.memory, keys, windows)
        ctx = WindowCall(windowed.watermark, windowed.clock)
        call = self._calling(keys, windows, ctx)
        try:
            results = {i: call(i, rows) for i, rows in windowed.calls(self._seen)}
            return WindowResults(*flattened(results, self.schema), metrics=ctx.metrics)
        except Exception:
            return each_window(windowed, self.schema, self._seen, call, ctx.metrics)

    def _calling(
        self, keys: list[Any], windows: list[FiredWindow], ctx: WindowCall
    ) -> Callable[[int, WindowRows], list[Any]]:
        """How to call it for a window; chosen here, once for what may be many thousand calls."""
        fn, copier = self._method, self._copier
        if self._takes_context:
            return lambda i, rows: many(fn(keys[i], windows[i], rows, ctx), copier)
        return lambda i, rows: many(fn(keys[i], windows[i], rows), copier)

    def _remembering(
        self,
        windowed: WindowedRows,
        memory: StoredValues,
        keys: list[Any],
        windows: list[FiredWindow],
    ) -> WindowResults:
        """Windows of a key in their order: one may build on the one before."""
        rows = dict(windowed.calls(self._names))
        results: dict[int, list[Any]] = {}
        faults: list[Fault] = []
        ctx, metrics = WindowCall(windowed.watermark, windowed.clock), UserMetrics()
        context = (ctx,) if self._takes_context else ()
        for i in windowed.order.tolist():
            shared, own = memory.keys[memory.owner[i]], memory.windows[i]
            one = copy.copy(self._fn)
            vars(one).update(copy.deepcopy({**shared, **own}))
            ctx.metrics.clear()
            try:
                given = self._given(rows[i])
                returned = many(one.process(keys[i], windows[i], given, *context), self._copier)
                table_of(returned, self.schema)
                for values in (shared, own):
                    self._check({n: getattr(one, n) for n in values})
            except Exception as error:
                faults.append(windowed.fault(i, error))
                continue
            results[i] = returned
            metrics.update(ctx.metrics)
            for values in (shared, own):
                values.update({n: state_copy(getattr(one, n)) for n in values})
        in_order = dict(sorted(results.items()))
        return WindowResults(*flattened(in_order, self.schema), faults, metrics)

    def _given(self, rows: WindowRows) -> Any:
        """What it is called with."""
        return rows

    def _check(self, values: dict[str, Any]) -> None:
        declared = type(self._fn).values
        schema = pa.schema([(n, declared[n].type) for n in values])
        if len(schema):
            table_of([tuple(values.values())], schema)

    def _key_values(self, windowed: WindowedRows) -> list[Any]:
        if not self._keys:
            return [None] * len(windowed)
        return key_values(windowed.keys, self._keys)

    def _windows(self, windowed: WindowedRows) -> list[FiredWindow]:
        begins = [None if b <= MIN_TIME else b for b in windowed.begins.tolist()]
        ends = [None if e >= MAX_TIME - 1 else e for e in windowed.ends.tolist()]
        panes, timings, finals = windowed.panes.tolist(), windowed.timings, windowed.finals
        return list(map(FiredWindow, begins, ends, panes, timings, finals))

    # values between firings, as rows of tables

    def loaded(
        self, stored: pa.Table, present: np.ndarray, per_window: bool
    ) -> list[dict[str, Any]]:
        """The values in each row of a table; start values where nothing is stored."""
        declared = type(self._fn).values
        names = self.value_schema(per_window).names
        columns = [pylist(stored.column(n)) for n in names]
        return [
            {
                n: declared[n].loaded(column[i]) if is_present else declared[n].start()
                for n, column in zip(names, columns, strict=True)
            }
            for i, is_present in enumerate(present.tolist())
        ]

    def stored(self, values: list[dict[str, Any]], per_window: bool) -> pa.Table:
        schema = self.value_schema(per_window)
        return table_of([tuple(v[n] for n in schema.names) for v in values], schema)


class ProcessAggregates(ProcessRows):
    """A user's function that is called with aggregates of the window instead of its rows."""

    def __init__(
        self, fn: Any, keys: Sequence[str], aggregates: AggregateRows, schema: pa.Schema
    ) -> None:
        super().__init__(fn, keys, aggregates.schema, schema)
        self.aggregates = aggregates
        self.columns = aggregates.columns  # what is needed of a row
        method = self._method
        self._method = lambda key, window, rows, *ctx: method(key, window, rows[0], *ctx)

    def _given(self, rows: WindowRows) -> Any:
        return rows[0]

    def over(self, windowed: WindowedRows) -> WindowResults:
        made = self.aggregates.over(windowed)
        return self.of_values(made.values.take(pa.array(np.argsort(made.windows))), windowed)

    def of_values(self, values: pa.Table, windowed: WindowedRows) -> WindowResults:
        """The same where the aggregates are known: a row of `values` for each window."""
        keys = windowed.keys.select(self._keys)
        rows = values  # what a dead letter shows has the key
        for name in keys.column_names:
            if name not in values.column_names:
                rows = rows.append_column(name, keys.column(name))
        starts = np.arange(values.num_rows)
        return super().over(replace(windowed, rows=rows, starts=starts, arrival=None))


def many(returned: Any, copier: RowCopier) -> list[Any]:
    """Nothing, one row, a list of rows or a generator: as rows of its own."""
    several = isinstance(returned, Iterator | WindowRows)
    return copier.all(returned if several else as_rows(returned))
