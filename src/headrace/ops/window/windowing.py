"""How a stream is cut into windows of time: a value that says it all."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.ops.window.assigners import Assigner
from headrace.ops.window.trigger_base import Trigger


@dataclass(frozen=True)
class Windowing:
    """How a stream is cut, and when and how a window shows its result."""

    assigner: Assigner
    trigger: Trigger
    lateness: int = 0
    mode: str = "replace"  # or "delta", "retract"
    loses: bool = False  # what was not shown when a window is forgotten never is
