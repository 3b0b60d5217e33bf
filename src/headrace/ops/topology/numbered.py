"""Rows with the number of the task that they go to: for steps whose key it is, such as windows."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.ops.contract import ChunkSpec
from headrace.ops.topology.groupings import CUSTOM, StreamGrouping

NUMBER = "task"


@dataclass(frozen=True)
class Numbered(ChunkSpec):
    """A row for each task that it goes to, with a column of its number."""

    grouping: StreamGrouping
    tasks: int

    kind = "grouping"
    several = True

    def __str__(self) -> str:
        """Also at rest: it says what the number is."""
        return f"{self.grouping}, to {self.tasks} task{'s' if self.tasks > 1 else ''}"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return () if self.grouping.function is None else (self.grouping.function,)

    def leaves(self, columns: Collection[str]) -> bool:
        return NUMBER not in columns

    def makes(self, column: str) -> str:
        return str(self) if column == NUMBER else ""

    @property
    def dealt_by(self) -> tuple[str, ...]:
        return self.grouping.fields if self.tasks > 1 else ()

    def run(
        self, chunk: pa.Table, schema: pa.Schema
    ) -> tuple[pa.Table, list[tuple[int, BaseException]]]:
        """The rows, those for which the user's function fails left out."""
        if self.grouping.kind != CUSTOM:
            return self._with_numbers(*self.grouping.deal(chunk, self.tasks)), []
        parts, failed = [], list[tuple[int, BaseException]]()
        for place in range(chunk.num_rows):
            try:
                parts.append(self.grouping.deal(chunk.slice(place, 1), self.tasks))
            except Exception as error:
                failed.append((place, error))
        rows = pa.concat_tables([part for part, _ in parts]) if parts else chunk.slice(0, 0)
        numbers = [numbers for _, numbers in parts] or [np.zeros(0, np.int64)]
        return self._with_numbers(rows, np.concatenate(numbers)), failed

    def _with_numbers(self, rows: pa.Table, numbers: np.ndarray) -> pa.Table:
        return rows.append_column(NUMBER, pa.array(numbers, pa.int64()))
