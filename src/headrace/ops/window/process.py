"""Process functions over windows: the user's code sees all rows of a window at once.

A function, or an object of a class that declares values: some kept per key, some per
window. A call that raises leaves both as they were, and counts nothing.
"""

from __future__ import annotations

import copy
import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.ops.contract import Fault
from headrace.ops.keys import key_values
from headrace.ops.process.state_kinds import ValueState, value
from headrace.ops.window.function import (
    StoredValues,
    WindowedRows,
    WindowResults,
    WindowRows,
    one_by_one,
)
from headrace.rows import collector_paused, pylist, table_of


@dataclass(frozen=True, slots=True)
class FiredWindow:
    """The window that a process function is called for."""

    start: int | None  # ms; None for a window without bounds
    end: int | None
    pane: int  # how often it has fired before
    timing: str  # "early", "on time", "late"
    final: bool


class WindowCall:
    """What a process function may ask and tell; one for all calls of a batch.

    Its words are those of the `ctx` of keyed process functions.
    """

    __slots__ = ("clock", "counts", "watermark")

    def __init__(self, watermark: int, clock: int) -> None:
        self.watermark, self.clock = watermark, clock
        self.counts: Counter[str] = Counter()

    def count(self, name: str, n: int = 1) -> None:
        """Add `n` to a figure of your own, that the run shows."""
        self.counts[name] += int(n)


@dataclass(frozen=True, slots=True, eq=False)
class WindowValue(ValueState):
    """A value kept per window, as long as the window is."""

    at_rest = "WindowValue"


def window_value(kind: Any, default: Any = None) -> Any:
    """Declare a value kept per window: `shown = hr.window_value(int, default=0)`."""
    made = value(kind, default)
    return WindowValue(made.type, made.default, made.kind)


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
        self._seen = row.names if seen is None else seen  # all, or what it surely looks at
        self.columns = row.names  # what it sees of a row
        self._keeps = isinstance(fn, WindowProcess) and bool(fn.values)
        self._method = fn.process if isinstance(fn, WindowProcess) else fn
        self._asks = not takes(self._method, 3)  # for a context

    def kept(self, per_window: bool) -> pa.Schema:
        return self._fn.kept(per_window) if self._keeps else pa.schema([])

    @collector_paused()
    def over(self, laid: WindowedRows) -> WindowResults:
        keys, windows = self._key_values(laid), self._windows(laid)
        if self._keeps:
            assert laid.memory is not None
            return self._remembering(laid, laid.memory, keys, windows)
        ctx = WindowCall(laid.watermark, laid.clock)
        call = self._calling(keys, windows, ctx)
        try:
            given = [call(i, rows) for i, rows in laid.calls(self._seen)]
            numbers = np.repeat(np.arange(len(laid)), list(map(len, given)))
            table = table_of([row for rows in given for row in rows], self.schema)
            return WindowResults(table, numbers, counts=ctx.counts)
        except Exception:
            return one_by_one(laid, self.schema, self._seen, call, ctx.counts)

    def _calling(
        self, keys: list[Any], windows: list[FiredWindow], ctx: WindowCall
    ) -> Callable[[int, WindowRows], list[Any]]:
        """How to call it for a window; chosen here, once for what may be many thousand calls."""
        fn = self._method
        if self._asks:
            return lambda i, rows: many(fn(keys[i], windows[i], rows, ctx))
        return lambda i, rows: many(fn(keys[i], windows[i], rows))

    def _remembering(
        self, laid: WindowedRows, memory: StoredValues, keys: list[Any], windows: list[FiredWindow]
    ) -> WindowResults:
        """Windows of a key in the order of their ends: one may build on the one before."""
        rows = dict(laid.calls(self.columns))
        given: dict[int, list[Any]] = {}
        faults: list[Fault] = []
        ctx, counts = WindowCall(laid.watermark, laid.clock), Counter[str]()
        asked = (ctx,) if self._asks else ()
        for i in np.lexsort((laid.begins, laid.ends)).tolist():
            shared, own = memory.keys[memory.owner[i]], memory.windows[i]
            one = copy.copy(self._fn)
            vars(one).update(copy.deepcopy({**shared, **own}))
            ctx.counts.clear()
            try:
                made = many(one.process(keys[i], windows[i], rows[i], *asked))
                table_of(made, self.schema)
                for values in (shared, own):
                    self._check({n: getattr(one, n) for n in values})
            except Exception as error:
                faults.append(Fault(laid.rows.slice(laid.bounds(i).start, 1), error))
                continue
            given[i] = made
            counts.update(ctx.counts)
            for values in (shared, own):
                values.update({n: getattr(one, n) for n in values})
        order = sorted(given)
        numbers = np.repeat(np.array(order, np.int64), [len(given[i]) for i in order])
        table = table_of([row for i in order for row in given[i]], self.schema)
        return WindowResults(table, numbers, faults, counts)

    def _check(self, values: dict[str, Any]) -> None:
        declared = type(self._fn).values
        schema = pa.schema([(n, declared[n].type) for n in values])
        if len(schema):
            table_of([tuple(values.values())], schema)

    def _key_values(self, laid: WindowedRows) -> list[Any]:
        if not self._keys:
            return [None] * len(laid)
        return key_values(laid.keys, self._keys)

    def _windows(self, laid: WindowedRows) -> list[FiredWindow]:
        begins = [None if b <= MIN_TIME else b for b in laid.begins.tolist()]
        ends = [None if e >= MAX_TIME - 1 else e for e in laid.ends.tolist()]
        facts = zip(begins, ends, laid.panes.tolist(), laid.timings, laid.finals, strict=True)
        return [FiredWindow(*fact) for fact in facts]

    # what is kept between firings, as rows of tables

    def loaded(self, stored: pa.Table, found: np.ndarray, per_window: bool) -> list[dict[str, Any]]:
        """The values in each row of a table; start values where nothing is stored."""
        declared = type(self._fn).values
        names = self.kept(per_window).names
        columns = [pylist(stored.column(n)) for n in names]
        return [
            {
                n: declared[n].loaded(column[i]) if known else declared[n].start()
                for n, column in zip(names, columns, strict=True)
            }
            for i, known in enumerate(found.tolist())
        ]

    def stored(self, values: list[dict[str, Any]], per_window: bool) -> pa.Table:
        schema = self.kept(per_window)
        return table_of([tuple(v[n] for n in schema.names) for v in values], schema)


def many(given: Any) -> list[Any]:
    """Nothing, one row, a list of rows or a generator: as rows."""
    if isinstance(given, tuple):  # a row, as most give it: asking for iterators takes longer
        return [given]
    if given is None:
        return []
    return list(given) if isinstance(given, list | WindowRows | Iterator) else [given]
