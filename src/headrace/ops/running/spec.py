"""Running aggregates, and running reduce and fold, as specs: a row out for each row in."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.at_rest import described
from headrace.callables import PyFunction, title
from headrace.ops.agg.named import Aggs, aggregates_code, aggregates_shape, aggregates_text
from headrace.ops.contract import Place, Spec
from headrace.ops.running.agg import RunningAggregateOperator
from headrace.ops.running.fold import Folder, RunningFoldOperator


@dataclass(frozen=True, eq=False)
class RunningAggregates(Spec):
    """Each row with the aggregates of its key so far.

    The input may have further columns: the arguments that `plan/rewrite.py` projected.
    """

    aggs: Aggs

    at_rest = "Rolling"
    kind = "rolling"
    keys_by_name = True
    endless = True

    @property
    def by_event_time(self) -> bool:
        return any(agg.ordered for _, agg in self.aggs)

    @property
    def aggregates(self) -> Aggs:
        return self.aggs

    def with_aggregates(self, aggs: Aggs) -> RunningAggregates:
        return replace(self, aggs=aggs)

    @property
    def user_code(self) -> list[Any]:
        return aggregates_code(self.aggs)

    def __str__(self) -> str:
        return aggregates_text(self.aggs)

    def state_shape(self, place: Place) -> dict[str, Any]:
        return {"kind": self.at_rest, "aggregates": aggregates_shape(self.aggs, place.input)}

    def passes_on(self, columns: Collection[str]) -> bool:
        return not {name for name, _ in self.aggs}.intersection(columns)

    def operator(self, place: Place) -> RunningAggregateOperator:
        return RunningAggregateOperator(dict(self.aggs), place.key, place.input, place.output)


@dataclass(frozen=True, eq=False)
class Folding:
    """The user's functions of a `reduce` (`zero` is None) or a `fold`."""

    function: PyFunction
    zero: PyFunction | None  # makes a fresh start value
    value: pa.Schema  # the accumulator's columns

    @property
    def method(self) -> str:
        return "reduce" if self.zero is None else "fold"

    @property
    def user_code(self) -> list[Callable[..., Any]]:
        return [one.fn for one in (self.function, self.zero) if one is not None]

    def __str__(self) -> str:
        return f"{self.method} {title(self.function.fn)}"

    def shape(self) -> dict[str, Any]:
        return {"folds": self.method, "values": described(self.value)}

    def folder(self, input: pa.Schema) -> Folder:
        zero = self.zero.fn if self.zero else None
        return Folder(self.function.fn, zero, self.value, input)


@dataclass(frozen=True, eq=False)
class RunningFold(Spec):
    """What a key's rows fold into so far."""

    folding: Folding

    at_rest = "Fold"
    kind = "fold"
    keys_by_name = True
    endless = True
    by_event_time = False

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.folding.function.fn,)

    @property
    def user_code(self) -> list[Any]:
        return [*self.folding.user_code]

    @property
    def python(self) -> str:
        return str(self.folding.function)

    def __str__(self) -> str:
        return str(self.folding)

    def state_shape(self, place: Place) -> dict[str, Any]:
        return {"kind": self.at_rest, **self.folding.shape()}

    def operator(self, place: Place) -> RunningFoldOperator:
        return RunningFoldOperator(
            self.folding.folder(place.input), place.key, place.input, place.output
        )
