"""Values of process functions: those per key in a table, those per window with the window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from headrace.arrays import Index, Mask, flat
from headrace.chunk import HASH
from headrace.ops.contract import EpochStep
from headrace.ops.keys import key_numbers
from headrace.ops.tables import side_by_side, with_column
from headrace.ops.window.function import StoredValues, WindowFunction
from headrace.ops.window.process import ProcessRows
from headrace.state.table import TableSpec

VALUES = "values"
_OWN, _SET = "$own.", "$own"


class ValueStore:
    """Loads the values of a function for some windows, and stores them again."""

    def __init__(self, function: WindowFunction | None, keys: Sequence[str]) -> None:
        self._process = function if isinstance(function, ProcessRows) else None
        self._identity = [HASH, *keys]
        self._key_values, self._own = (
            self._process.value_schema(per_window) if self._process else pa.schema([])
            for per_window in (False, True)
        )

    @property
    def used(self) -> bool:
        return bool(len(self._key_values) or len(self._own))

    def fields(self) -> list[pa.Field]:
        """The columns of the values per window."""
        if not len(self._own):
            return []
        return [pa.field(_SET, pa.bool_()), *(f.with_name(f"{_OWN}{f.name}") for f in self._own)]

    def spec(self, keys: pa.Schema) -> TableSpec | None:
        return TableSpec(VALUES, keys, self._key_values) if len(self._key_values) else None

    def recall(self, windows: pa.Table, step: EpochStep) -> StoredValues | None:
        """The stored values of these windows and their keys."""
        if self._process is None or not self.used:
            return None
        identity = windows.select(self._identity)
        number, first = key_numbers(identity)
        keys: list[dict[str, object]] = [{} for _ in first]
        if len(self._key_values):
            stored, present = step.tables[VALUES].get(identity.take(pa.array(first)))
            keys = self._process.loaded(stored, present, per_window=False)
        own: list[dict[str, object]] = [{} for _ in number]
        if len(self._own):
            present = windows.column(_SET).fill_null(False).to_numpy()
            names = [f"{_OWN}{n}" for n in self._own.names]
            stored = windows.select(names).rename_columns(self._own.names)
            own = self._process.loaded(stored, present, per_window=True)
        return StoredValues(number, keys, own)

    def store_keys(self, memory: StoredValues, windows: pa.Table, step: EpochStep) -> None:
        if self._process is None or not len(self._key_values):
            return
        identity = windows.select(self._identity)
        _, first = key_numbers(identity)
        rows = identity.take(pa.array(first))
        values = self._process.stored(memory.keys, per_window=False)
        step.tables[VALUES].put(side_by_side(rows, values))

    def store_own(self, memory: StoredValues, windows: pa.Table, at: Index) -> pa.Table:
        """The windows, with new values for those `at` these places."""
        if self._process is None or not len(self._own):
            return windows
        values = self._process.stored(memory.windows, per_window=True)
        place = np.arange(windows.num_rows)
        place[at] = windows.num_rows + np.arange(len(at))
        for name in self._own.names:
            column = f"{_OWN}{name}"
            both = [flat(windows.column(column)), flat(values.column(name))]
            new = pa.concat_arrays(both).take(pa.array(place))
            windows = with_column(windows, column, new)
        is_set: Mask = windows.column(_SET).fill_null(False).to_numpy().copy()
        is_set[at] = True
        return with_column(windows, _SET, pa.array(is_set))
