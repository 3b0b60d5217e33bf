"""Predict, then learn: each row with what a model of river says of it before it has learned it.

A row without a target is only predicted. A null feature is not there, as river has it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.ops.contract import Operator, Place
from headrace.ops.learn.models_by_key import (
    LearningOperator,
    LearningSpec,
    hidden_of,
    not_finite,
)
from headrace.rows import pylist

PREDICTION, PROBABILITIES = "prediction", "probabilities"


def learn_fields(target: pa.DataType, classifies: bool, probabilities: bool) -> list[pa.Field]:
    """The columns that are added to a row."""
    fields = [pa.field(PREDICTION, target if classifies else pa.float64())]
    if probabilities:
        fields.append(pa.field(PROBABILITIES, pa.map_(target, pa.float64())))
    return fields


@dataclass(frozen=True)
class Learn(LearningSpec):
    target: str
    features: tuple[str, ...]
    types: tuple[tuple[str, str], ...]  # of target and features, as text
    probabilities: bool
    timed: bool
    model: str
    settings: tuple[tuple[str, Any], ...]

    kind = "learn"

    def __str__(self) -> str:
        model = dict(self.settings)["model"]
        return f"{self.target} from {', '.join(self.features)} by {model}"

    @property
    def compares(self) -> tuple[str, ...]:
        return (self.target, *self.features)

    def shape(self) -> dict[str, Any]:
        features, types = list(self.features), [list(pair) for pair in self.types]
        return {"target": self.target, "features": features, "types": types, **super().shape()}

    def reads(self, place: Place) -> pa.Schema:
        return place.input

    def passes_on(self, columns: Collection[str]) -> bool:
        return not {PREDICTION, PROBABILITIES}.intersection(columns)

    def operator(self, place: Place) -> Operator:
        return _LearnOperator(self, place)


class _LearnOperator(LearningOperator):
    def __init__(self, spec: Learn, place: Place) -> None:
        super().__init__(spec, place)
        self._target, self._features = spec.target, list(spec.features)
        self._probabilities, self._output = spec.probabilities, place.output

    def unfit(self, port: int, rows: pa.Table) -> tuple[np.ndarray, list[str]] | None:
        return not_finite(rows, [*self._features, self._target])

    def items(self, rows: pa.Table) -> Sequence[Any]:
        columns = [pylist(rows.column(name)) for name in self._features]
        names, values = self._features, zip(*columns, strict=True)
        if any(rows.column(name).null_count for name in names):
            pairs = (zip(names, row, strict=True) for row in values)
            features = [{n: v for n, v in row if v is not None} for row in pairs]
        else:
            features = list(map(dict, map(zip, repeat(names), values)))
        return list(zip(features, pylist(rows.column(self._target)), strict=True))

    def run(self, model: Any, items: Sequence[Any], results: list[Any]) -> None:
        predict, learn = model.predict_one, model.learn_one
        if self._probabilities:
            predict = model.predict_proba_one
        for features, target in items:
            found = predict(features)
            if target is not None:
                learn(features, target)
            results.append((found,))

    def emitted(self, rows: pa.Table, results: list[Any], numbers: np.ndarray) -> pa.Table:
        found: list[Any] = [one for (one,) in results]
        made: dict[str, Any] = {}
        if self._probabilities:
            kind = self._output.field(PROBABILITIES).type
            made[PROBABILITIES] = pa.array([list(one.items()) for one in found], kind)
            found = [max(one, key=one.get) if one else None for one in found]
        made[PREDICTION] = pa.array(found, self._output.field(PREDICTION).type)
        names, hidden = self._output.names, hidden_of(rows)
        columns = [made[n] if n in made else rows.column(n) for n in names]
        return pa.table([*columns, *map(rows.column, hidden)], [*names, *hidden])
