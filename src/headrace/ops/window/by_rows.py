"""Windows bounded by rows instead of time: how long they are and when they are shown.

    Count      every so many rows
    Delta      until a number has moved too far
    Until      until a row says so
    LastRows   the last so many rows, looked at every so often
    LastTime   the last while, looked at every so many rows

Specs are values that refuse to be wrong. How their windows are made is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from headrace.at_rest import Identified
from headrace.clock import MAX_TIME, pretty
from headrace.errors import PlanError, refusal

FIRST, PREVIOUS = "first", "previous"


@dataclass(frozen=True, slots=True)
class CountWindow(Identified):
    """`size` rows of a key; with `every`, the last `size` of them every so many rows."""

    size: int
    every: int | None = None

    def __post_init__(self) -> None:
        _rows("HR-WINDOW-010", "count window has size", self.size)
        if self.every is None:
            return
        _rows("HR-WINDOW-011", "count window fires every", self.every)
        if self.every > self.size:
            hint = "Choose 0 < every <= size: a larger step would skip rows."
            raise refusal(
                "HR-WINDOW-012", f"count window of {self.size} rows fires every {self.every}", hint
            )

    def at_rest(self) -> str:
        return f"{self.size} rows" if self.tumbles else f"{self.size} rows every {self.every}"

    @property
    def step(self) -> int:
        return self.size if self.every is None else self.every

    @property
    def tumbles(self) -> bool:
        return self.step == self.size


@dataclass(frozen=True, slots=True)
class DeltaWindow(Identified):
    """A window ends before the row whose number is more than `threshold` away.

    Away from the first number of the window, or from the previous one. A null or NaN neither
    ends a window nor is it measured from.
    """

    column: str
    threshold: float
    since: str = FIRST
    tumbles = True

    def __post_init__(self) -> None:
        number = isinstance(self.threshold, int | float) and not isinstance(self.threshold, bool)
        if not number or not isfinite(self.threshold) or self.threshold < 0:
            hint = "Give a number from zero on: how far the column may move within a window."
            raise refusal("HR-WINDOW-013", f"delta window has threshold {self.threshold!r}", hint)
        if self.since not in (FIRST, PREVIOUS):
            hint = 'Choose since="first" or since="previous": the row to measure from.'
            raise refusal("HR-WINDOW-014", f"delta window measures since {self.since!r}", hint)

    def at_rest(self) -> str:
        return f"until {self.column} moves by more than {self.threshold} since {self.since}"


@dataclass(frozen=True, slots=True)
class UntilWindow(Identified):
    """A window ends with the row in which `column` is true, or (not `inside`) before it."""

    column: str
    inside: bool = True
    tumbles = True

    def at_rest(self) -> str:
        return f"until {self.column}" if self.inside else f"until before {self.column}"


@dataclass(frozen=True, slots=True)
class LastRows(Identified):
    """The last `rows` rows of a key at each multiple of `every` ms, if any are new."""

    rows: int
    every: int
    tumbles = False

    def __post_init__(self) -> None:
        _rows("HR-WINDOW-015", "window has", self.rows)
        _duration("HR-WINDOW-016", "window of the last rows is looked at every", self.every)

    def at_rest(self) -> str:
        return f"last {self.rows} rows every {pretty(self.every)}"


@dataclass(frozen=True, slots=True)
class LastTime(Identified):
    """The last `size` ms of a key, at every `every`-th row of it."""

    size: int
    every: int
    tumbles = False

    def __post_init__(self) -> None:
        _duration("HR-WINDOW-017", "window of the last while has size", self.size)
        _rows("HR-WINDOW-018", "window of the last while fires every", self.every)

    def at_rest(self) -> str:
        return f"last {pretty(self.size)} every {self.every} rows"


RowWindow: TypeAlias = CountWindow | DeltaWindow | UntilWindow | LastRows | LastTime


def column_of(spec: RowWindow) -> str | None:
    """The column that decides where a window ends, if there is one."""
    return spec.column if isinstance(spec, DeltaWindow | UntilWindow) else None


def needs_time(spec: RowWindow) -> bool:
    """Whether rows must have an event time."""
    return isinstance(spec, LastRows | LastTime)


def untimed(spec: RowWindow) -> PlanError:
    hint = "Say which column is the time when reading, or use windows of so many rows."
    return refusal("HR-WINDOW-021", f"window ({spec}) needs rows with an event time", hint)


def check(spec: RowWindow, schema: pa.Schema) -> None:
    """Refuse a column that is not there or not of a kind that can end a window."""
    column = column_of(spec)
    if column is None:
        return
    if column not in schema.names:
        names = ", ".join(n for n in schema.names if not n.startswith("__"))
        raise refusal(
            "HR-WINDOW-022",
            f"window ({spec}) goes by a missing column {column!r}",
            f"Use: {names}.",
        )
    kind = schema.field(column).type
    if isinstance(spec, UntilWindow) and not pt.is_boolean(kind):
        hint = "Give a condition, such as a comparison."
        raise refusal("HR-WINDOW-020", f"window ({spec}) goes by a column of type {kind}", hint)
    if isinstance(spec, DeltaWindow) and not _is_number(kind):
        hint = "Measure an integer, float or decimal; cast the column first."
        raise refusal("HR-WINDOW-019", f"window ({spec}) measures a column of type {kind}", hint)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _rows(code: str, fact: str, value: object) -> None:
    if not _is_whole(value):
        raise refusal(code, f"{fact} {value!r} rows", "Choose a whole number of rows above zero.")


def _duration(code: str, fact: str, value: object) -> None:
    if not _is_whole(value):
        raise refusal(code, f"{fact} {value!r} ms", "Choose a duration above zero.")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < MAX_TIME
