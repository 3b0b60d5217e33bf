"""The steps of a script as values, and `play`, which does them with a harness.

A step prints as the call that makes it, so what a failing test prints can be pasted into one
that plays it again. Strategies that draw whole scripts are in `strategies.py`; Hypothesis is
not needed here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.clock import Duration
from headrace.testing.harness import Harness
from headrace.testing.script import Time


@dataclass(frozen=True, repr=False)
class Step:
    """One thing that happens to a job under test."""

    def do(self, harness: Harness) -> None:
        """Let it happen."""
        raise NotImplementedError

    def __repr__(self) -> str:
        """The call that makes it; what is as by default is left out."""
        arguments = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.default is dataclasses.MISSING:
                arguments.append(repr(list(value) if isinstance(value, tuple) else value))
            elif value != field.default:
                arguments.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"


@dataclass(frozen=True, repr=False)
class Send(Step):
    """Rows come on a split of an input; `at` sets the clock first."""

    input: str
    rows: Sequence[Any]
    at: Time | None = None
    split: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", tuple(self.rows))

    def do(self, harness: Harness) -> None:
        harness.send(self.input, self.rows, at=self.at, split=self.split)


@dataclass(frozen=True, repr=False)
class Watermark(Step):
    """The input says that it has reached `time`."""

    input: str
    time: Time

    def do(self, harness: Harness) -> None:
        harness.watermark(self.input, self.time)


@dataclass(frozen=True, repr=False)
class Advance(Step):
    """Time passes: a duration, or until a datetime."""

    by: Duration | datetime

    def do(self, harness: Harness) -> None:
        harness.advance(self.by)


@dataclass(frozen=True, repr=False)
class Idle(Step):
    """A split falls silent."""

    input: str
    split: int = 0

    def do(self, harness: Harness) -> None:
        harness.idle(self.input, split=self.split)


@dataclass(frozen=True, repr=False)
class Crash(Step):
    """The next batch dies before it is committed, and is done again."""

    def do(self, harness: Harness) -> None:
        harness.crash()


@dataclass(frozen=True, repr=False)
class Restart(Step):
    """The job stops, and starts again on the same folder."""

    def do(self, harness: Harness) -> None:
        harness.restart()


@dataclass(frozen=True, repr=False)
class End(Step):
    """All inputs end; the last step, if it is there."""

    def do(self, harness: Harness) -> None:
        harness.end()


def play(harness: Harness, script: Iterable[Step]) -> None:
    """Do the steps of a script, one after the other."""
    for step in script:
        step.do(harness)
