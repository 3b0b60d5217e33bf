"""What process functions over windows remember: per key in a table, per window with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH
from headrace.ops.agg.groups import Index, Mask, flat
from headrace.ops.agg.keys import key_numbers
from headrace.ops.contract import Step
from headrace.ops.window.function import Memory, WindowFunction
from headrace.ops.window.process import ProcessRows
from headrace.state.table import TableSpec

VALUES = "values"
_OWN, _SET = "$own.", "$own"


class WindowMemory:
    """Loads what a function remembers of some windows, and stores it again."""

    def __init__(self, function: WindowFunction | None, keys: Sequence[str]) -> None:
        self._process = function if isinstance(function, ProcessRows) else None
        self._identity = [HASH, *keys]
        self._key_values, self._own = (
            self._process.kept(per_window) if self._process else pa.schema([])
            for per_window in (False, True)
        )

    @property
    def used(self) -> bool:
        return bool(len(self._key_values) or len(self._own))

    def fields(self) -> list[pa.Field]:
        """The columns that windows have for it."""
        if not len(self._own):
            return []
        return [pa.field(_SET, pa.bool_()), *(f.with_name(f"{_OWN}{f.name}") for f in self._own)]

    def spec(self, keys: pa.Schema) -> TableSpec | None:
        return TableSpec(VALUES, keys, self._key_values) if len(self._key_values) else None

    def recall(self, windows: pa.Table, step: Step) -> Memory | None:
        """What is remembered of these windows and their keys."""
        if self._process is None or not self.used:
            return None
        identity = windows.select(self._identity)
        number, first = key_numbers(identity)
        keys: list[dict[str, object]] = [{} for _ in first]
        if len(self._key_values):
            stored, found = step.tables[VALUES].get(identity.take(pa.array(first)))
            keys = self._process.loaded(stored, found, per_window=False)
        own: list[dict[str, object]] = [{} for _ in number]
        if len(self._own):
            found = windows.column(_SET).fill_null(False).to_numpy()
            names = [f"{_OWN}{n}" for n in self._own.names]
            stored = windows.select(names).rename_columns(self._own.names)
            own = self._process.loaded(stored, found, per_window=True)
        return Memory(number, keys, own)

    def store_keys(self, memory: Memory, windows: pa.Table, step: Step) -> None:
        if self._process is None or not len(self._key_values):
            return
        identity = windows.select(self._identity)
        _, first = key_numbers(identity)
        rows = identity.take(pa.array(first))
        made = self._process.stored(memory.keys, per_window=False)
        for name in made.column_names:
            rows = rows.append_column(name, made.column(name))
        step.tables[VALUES].put(rows)

    def store_own(self, memory: Memory, windows: pa.Table, at: Index) -> pa.Table:
        """The windows, with what is remembered of those `at` these places."""
        if self._process is None or not len(self._own):
            return windows
        made = self._process.stored(memory.windows, per_window=True)
        place = np.arange(windows.num_rows)
        place[at] = windows.num_rows + np.arange(len(at))
        for name in self._own.names:
            column = f"{_OWN}{name}"
            both = [flat(windows.column(column)), flat(made.column(name))]
            new = pa.concat_arrays(both).take(pa.array(place))
            windows = windows.set_column(windows.column_names.index(column), column, new)
        known: Mask = windows.column(_SET).fill_null(False).to_numpy().copy()
        known[at] = True
        return windows.set_column(windows.column_names.index(_SET), _SET, pa.array(known))
