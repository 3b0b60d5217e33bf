"""What every process of a run holds: the program, its inputs, outputs and clock, opened.

Inputs and outputs are opened once, on the driver, where relative paths mean what the user
meant; they are small, and travel with the program. So does the clock, and who is told of
durable steps: a test brings its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.plan.program import Program
from headrace.sinks import Sink
from headrace.sources import Source

Descriptions = Mapping[str, Mapping[str, Any]]  # of inputs or outputs, by name


@dataclass(frozen=True)
class Bundle:
    program: Program
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
    clock: Clock = field(default_factory=SystemClock)
    told: Callable[[str], None] | None = None  # of the durable steps of a commit, by name
    reads: Descriptions = field(default_factory=dict)  # what manifests say of the inputs
    writes: Descriptions = field(default_factory=dict)  # and of the outputs
    endless: bool = False  # it does not run until="end"
