"""What every process of a run holds: the program, its inputs and its outputs, opened.

Inputs and outputs are opened once, on the driver, where relative paths mean what the user
meant; they are small, and travel with the program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.plan.program import Program
from headrace.sinks import Sink
from headrace.sources import Source


@dataclass(frozen=True)
class Bundle:
    program: Program
    sources: Mapping[str, Source]
    sinks: Mapping[str, Sink]
