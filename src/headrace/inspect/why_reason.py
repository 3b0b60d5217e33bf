"""A reason why there is no output: the value that `why` gives, and how a time is told.

No number is told that means "never": such a time has a name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import MAX_TIME
from headrace.inspect.status import moment


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that keeps rows from the outputs: what it is, and what can be done."""

    kind: str
    where: str  # the name of the input, step or output
    text: str
    hint: str
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.text}\n  {self.hint}"


Reasons = Iterator[Reason]


def stands(watermark: int) -> str:
    """Where a watermark is, as the end of a sentence."""
    if abs(watermark) == MAX_TIME:
        return "has not begun" if watermark < 0 else "is at the end of time"
    return f"is at {moment(watermark)}"
