"""What is computed of theta sketches: unions, intersections, differences, and how many they hold.

    with_columns(both=hr.theta_count(hr.theta_intersect("phone", "desk"), bounds=True))

Each is a column that `with_columns` computes of a row, by the library: rows with sketches are
results of windows, and few. Of a null the result is null.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError, StepError, call_site
from headrace.expr import Expr, col
from headrace.ops.sketch import library
from headrace.ops.sketch.hll import BOUNDED
from headrace.ops.sketch.library import check_installed


@dataclass(frozen=True)
class SketchFunction:
    """A function of columns of sketches, called with a row."""

    name: str
    arguments: tuple[str | SketchFunction, ...]
    bounds: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", str(self))  # how plans name it

    def __str__(self) -> str:
        options = ["bounds=True"] if self.bounds else []
        return f"{self.name}({', '.join([*map(str, self.arguments), *options])})"

    @property
    def columns(self) -> list[str]:
        """The columns that it reads."""
        found = [[a] if isinstance(a, str) else a.columns for a in self.arguments]
        return [name for names in found for name in names]

    @property
    def type(self) -> pa.DataType:
        """What it computes."""
        if self.name != COUNT:
            return pa.binary()
        return BOUNDED if self.bounds else pa.int64()

    def __call__(self, row: Any) -> Any:
        sketches = [getattr(row, a) if isinstance(a, str) else a(row) for a in self.arguments]
        if None in sketches:
            return None
        try:
            if self.name != COUNT:
                return library.theta_combined(self.name, sketches)
            value, low, high = library.theta_estimate(sketches[0])
        except (RuntimeError, ValueError, IndexError) as error:
            raise StepError(
                "HR-APPROX-007",
                f"{self} has bytes that are no theta sketch",
                "Pass columns that hr.theta made, or compact theta sketches of DataSketches.",
            ) from error
        if not self.bounds:
            return round(value)
        return {"value": round(value), "low": int(low), "high": max(round(high), round(value))}


COUNT, UNION, INTERSECT, DIFFERENCE = (
    "theta_count", "theta_union", "theta_intersect", "theta_difference",
)  # fmt: skip


def theta_count(sketch: Any, *, bounds: bool = False) -> SketchFunction:
    """About how many different values a theta sketch holds, for `with_columns`.

    With `bounds` a struct of value, low and high: the exact number lies between them, for 99 of 100
    streams.
    """
    return _function(COUNT, (sketch,), bounds)


def theta_union(*sketches: Any) -> SketchFunction:
    """The sketch of all values that are in one of these theta sketches, for `with_columns`."""
    return _function(UNION, sketches)


def theta_intersect(*sketches: Any) -> SketchFunction:
    """The sketch of the values that are in all of these theta sketches, for `with_columns`."""
    return _function(INTERSECT, sketches)


def theta_difference(sketch: Any, *without: Any) -> SketchFunction:
    """The sketch of the values that are in the first, and in none of the others."""
    return _function(DIFFERENCE, (sketch, *without))


def _function(name: str, arguments: tuple[Any, ...], bounds: bool = False) -> SketchFunction:
    check_installed(name)
    arguments = tuple(_column(a) for a in arguments)
    sets = [a for a in arguments if isinstance(a, str)
            or (isinstance(a, SketchFunction) and a.name != COUNT)]  # fmt: skip
    least = 1 if name == COUNT else 2
    if len(sets) < max(len(arguments), least):
        wrong = [str(a) for a in arguments if a not in sets]
        raise PlanError(
            "HR-APPROX-005",
            f"{name} takes {wrong[0] if wrong else 'only one sketch'}",
            f'Name columns that hr.theta made, or unions of them: hr.{INTERSECT}("a", "b").',
            site=call_site(),
        )
    return SketchFunction(name, arguments, bounds)


def _column(argument: Any) -> Any:
    """The name of a column that is passed as an expression."""
    if isinstance(argument, Expr) and len(argument.columns) == 1:
        (name,) = argument.columns
        return name if argument.sql() == col(name).sql() else argument
    return argument
