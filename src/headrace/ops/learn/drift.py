"""Change detection: a row for each change that a detector of river finds in a column.

The detector of a key is its model. A null is no value; the values of a key are seen in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.arrays import timestamps
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.ops.contract import Operator, Place
from headrace.ops.learn.models_by_key import (
    LearningOperator,
    LearningSpec,
    hidden_of,
    not_finite,
)
from headrace.schema import TIMESTAMP

Figures = tuple[float, ...]

FIGURES = {  # what a change has besides its row
    "adwin": ("mean_before", "mean_after"),
    "page_hinkley": ("mean_before",),
    "kswin": ("mean_before", "mean_after", "p_value"),
}
_AT, _VALUE, _ROWS = "at", "value", "rows"


def drift_fields(detector: str, timed: bool) -> list[pa.Field]:
    """The columns of a change, after its key."""
    at = [pa.field(_AT, TIMESTAMP)] if timed else []
    figures = [pa.field(name, pa.float64()) for name in FIGURES[detector]]
    return [*at, pa.field(_VALUE, pa.float64()), pa.field(_ROWS, pa.int64()), *figures]


@dataclass(frozen=True)
class Drift(LearningSpec):
    column: str
    detector: str
    timed: bool
    model: str
    settings: tuple[tuple[str, Any], ...]

    kind = "drift"

    def __str__(self) -> str:
        return f"changes of {self.column} by {self.detector}"

    @property
    def compares(self) -> tuple[str, ...]:
        return (self.column,)

    def shape(self) -> dict[str, Any]:
        return {"column": self.column, "detector": self.detector, **super().shape()}

    def reads(self, place: Place) -> pa.Schema:
        names = dict.fromkeys([*place.key, self.column])
        return pa.schema([place.input.field(name) for name in names])

    def operator(self, place: Place) -> Operator:
        return _DriftOperator(self, place)


class _DriftOperator(LearningOperator):
    def __init__(self, spec: Drift, place: Place) -> None:
        super().__init__(spec, place)
        self._column, self._output = spec.column, place.output
        self._update = _UPDATES[spec.detector]

    def unfit(self, port: int, rows: pa.Table) -> tuple[np.ndarray, list[str]] | None:
        return not_finite(rows, [self._column])

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        hidden = [n for n in (TIME, SOURCE, OFFSET, HASH) if n in rows.column_names]
        return rows.select([*self._rows.names, *hidden])

    def items(self, rows: pa.Table) -> Sequence[Any]:
        values: list[Any] = rows.column(self._column).cast(pa.float64()).to_pylist()
        return values

    def run(self, model: Any, items: Sequence[Any], results: list[Any]) -> None:
        self._update(model, items, results)

    def emitted(self, rows: pa.Table, results: list[Any], numbers: np.ndarray) -> pa.Table:
        made: dict[str, Any] = {_VALUE: rows.column(self._column).cast(pa.float64())}
        made[_ROWS] = pa.array(numbers)
        if TIME in rows.column_names:
            made[_AT] = timestamps(rows.column(TIME).to_numpy())
        figures = self._output.names[len(self._output) - len(results[0]) :]
        for place, name in enumerate(figures):
            made[name] = pa.array([float(found[place]) for found in results], pa.float64())
        names, hidden = self._output.names, hidden_of(rows)
        columns = [made[n] if n in made else rows.column(n) for n in names]
        return pa.table([*columns, *map(rows.column, hidden)], [*names, *hidden])


# Each detector with its figures; None where there is no change.


def _adwin(model: Any, values: Sequence[float | None], results: list[Figures | None]) -> None:
    for value in values:
        if value is None:
            results.append(None)
            continue
        before = 0.0 if model.drift_detected else model.estimation  # it begins anew
        model.update(value)
        results.append((before, model.estimation) if model.drift_detected else None)


def _page_hinkley(
    model: Any, values: Sequence[float | None], results: list[Figures | None]
) -> None:
    for value in values:
        if value is not None:
            model.update(value)
            if model.drift_detected:
                results.append((model._x_mean.get(),))
                continue
        results.append(None)


def _kswin(model: Any, values: Sequence[float | None], results: list[Figures | None]) -> None:
    recent = model.stat_size
    for value in values:
        if value is None:
            results.append(None)
            continue
        window = deque(() if model.drift_detected else model.window, model.window_size)
        window.append(value)
        model.update(value)
        if model.drift_detected:
            seen = list(window)
            older = seen[: len(seen) - recent]
            means = (fsum(part) / len(part) for part in (older, seen[-recent:]))
            results.append((*means, float(model.p_value)))
        else:
            results.append(None)


_UPDATES: dict[str, Callable[[Any, Sequence[Any], list[Any]], None]] = {
    "adwin": _adwin,
    "page_hinkley": _page_hinkley,
    "kswin": _kswin,
}
