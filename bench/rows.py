"""Rows of the table: a ratio, what it should be, and the figures it comes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

AT_LEAST, AT_MOST = ">=", "<="


@dataclass(frozen=True, slots=True)
class Row:
    job: str
    what: str
    ours: str
    theirs: str
    ratio: float | None  # None: there was nothing to compare with
    sense: str = AT_LEAST
    target: float | None = None  # None: for information
    unit: str = "x"
    equal: bool | None = None  # None: there is no contender to agree with

    @property
    def met(self) -> bool | None:
        if self.target is None or self.ratio is None:
            return None
        if self.sense == AT_LEAST:
            return self.ratio >= self.target
        return self.ratio <= self.target

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "met": self.met}


def speed(rows_per_second: float) -> str:
    if rows_per_second >= 1e6:
        return f"{rows_per_second / 1e6:.2f} M/s"
    return f"{rows_per_second / 1e3:.0f} k/s"


def millis(value: float) -> str:
    return f"{value:.0f} ms"


def seconds(value: float) -> str:
    return f"{value:.1f} s"


def megabytes(value: float) -> str:
    return f"{value / 2**20:.0f} MB"


Shown = Callable[[float], str]
