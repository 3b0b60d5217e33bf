"""What windows have shown, kept so that it can be taken back: for mode "retract".

A result is taken back as it was shown, its pane and timing included, so that "+" and "-"
rows cancel out. Only a window that is still the same has something to take back; one that
became part of another takes it back at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.ops.agg.groups import Index, Mask, flat, integers, valid
from headrace.ops.window.function import WindowResults

WAS = "$was"  # how the timing was of what was shown; null before anything was


class Retraction:
    def __init__(self, values: Sequence[pa.Field]) -> None:
        self._values = list(values)

    def fields(self) -> list[pa.Field]:
        """The columns in which a window remembers what it last showed."""
        columns = [pa.field(_column(f.name), f.type) for f in self._values]
        return [pa.field(WAS, pa.int8()), *columns]

    def there(self, windows: pa.Table) -> Mask:
        """Which windows have something to take back."""
        return valid(flat(windows.column(WAS)))

    def values(self, windows: pa.Table) -> pa.Table:
        names = [f.name for f in self._values]
        return windows.select([_column(n) for n in names]).rename_columns(names)

    def timing(self, windows: pa.Table) -> Index:
        return integers(windows.column(WAS))

    def remember(
        self, windows: pa.Table, fire: Mask, given: WindowResults, timing: Index
    ) -> pa.Table:
        """The windows after those that `fire` have shown what they gave, which may be nothing."""
        at = np.full(windows.num_rows, -1, np.int64)
        at[np.flatnonzero(fire)[given.windows]] = np.arange(len(given.windows))
        place = pa.array(at, mask=at < 0)
        new = {_column(f.name): flat(given.values.column(f.name)).take(place) for f in self._values}
        new[WAS] = pa.array(timing, pa.int8(), mask=at < 0)
        for name, values in new.items():
            column = pc.if_else(pa.array(fire), values, windows.column(name))
            windows = windows.set_column(windows.column_names.index(name), name, column)
        return windows


def _column(name: str) -> str:
    return f"{WAS}.{name}"
