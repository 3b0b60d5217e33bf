"""What every process of a run holds: the program, its inputs, outputs and clock, opened.

Inputs and outputs are opened once, on the driver, where relative paths mean what the user
meant; they are small, and travel with the program. So does the clock, and who is told of
durable steps: a test brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headrace.clock import Clock, SystemClock
from headrace.plan.program import Program
from headrace.sinks import Sink
from headrace.sources import Source
from headrace.state.manifest import InputFacts, OutputFacts


@dataclass(frozen=True)
class Bundle:
    program: Program
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    clock: Clock = field(default_factory=SystemClock)
    told: Callable[[str], None] | None = None  # of the durable steps of a commit, by name
    reads: Mapping[str, InputFacts] = field(default_factory=dict)  # as a manifest has them
    writes: Mapping[str, OutputFacts] = field(default_factory=dict)
    endless: bool = False  # it does not run until="end"

    def place_of(self, output: str) -> str:
        """The place of an output, as a key; the job's own for dead letters has none."""
        return self.writes[output].place if output in self.writes else "None"
