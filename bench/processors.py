"""What is written by hand for `transformWithStateInPandas`: windows of rows, and state per key.

Called once per key and batch with all new rows of the key, so each reads its state once and
writes it once. Spark's workers import this module by name; nothing of Headrace is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from bench.functions import moved, spread


class Totals(StatefulProcessor):
    """Sum and maximum of every `size` rows; kept is a partial of the open window."""

    def __init__(self, size: int) -> None:
        self._size = size

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._open = handle.getValueState("open", "n bigint, total double, top double")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        n, total, top = self._open.get() or (0, 0.0, -np.inf)
        values = np.concatenate([table["celsius"].to_numpy() for table in rows])
        full = []
        at = 0
        while at < len(values):
            piece = values[at : at + self._size - n]
            n, total, top = n + len(piece), total + piece.sum(), max(top, piece.max())
            at += len(piece)
            if n == self._size:
                full.append((key[0], n, total, top))
                n, total, top = 0, 0.0, -np.inf
        self._open.update((n, float(total), float(top)))
        if full:
            yield pd.DataFrame(full, columns=["sensor", "n", "total", "top"])

    def close(self) -> None:
        pass


class Hundreds(StatefulProcessor):
    """A Python function over every `size` rows; kept are the values of the open window."""

    def __init__(self, size: int) -> None:
        self._size = size

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._open = handle.getValueState("open", "celsius array<double>")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        held = self._open.get()
        values = list(held[0]) if held else []
        for table in rows:
            values += table["celsius"].tolist()
        size = self._size
        whole = len(values) // size * size
        full = [(key[0], size, *spread(values[i : i + size])) for i in range(0, whole, size)]
        self._open.update((values[whole:],))
        if full:
            yield pd.DataFrame(full, columns=["sensor", "n", "median", "range"])

    def close(self) -> None:
        pass


class Changes(StatefulProcessor):
    """A row for each row: its number, and by how much it differs from the key's last."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._seen = handle.getValueState("seen", "n bigint, last double")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        n, last = self._seen.get() or (0, None)
        for table in rows:
            given = []
            for celsius in table["celsius"].tolist():
                n, change = moved(n, last, celsius)
                last = celsius
                given.append((key[0], n, change))
            yield pd.DataFrame(given, columns=["sensor", "n", "change"])
        self._seen.update((n, last))

    def close(self) -> None:
        pass
