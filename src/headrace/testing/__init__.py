"""For tests of streaming programs: jobs in this process or on Spark, step by step.

Plan, operators, state and commits are always the real ones; see `harness.py` for what is
not. Neither Spark, PyYAML nor Hypothesis is imported before a test asks for it; strategies
are in `headrace.testing.strategies`, which is imported by that name.
"""

from headrace.look.in_process import Driver
from headrace.testing.drive import drive
from headrace.testing.harness import Harness
from headrace.testing.input_suite import InputCase, InputSuite
from headrace.testing.output_drivers import OutputCase
from headrace.testing.output_suite import OutputSuite
from headrace.testing.steps import (
    Advance,
    Crash,
    End,
    Idle,
    Restart,
    Send,
    Step,
    Watermark,
    play,
)
from headrace.testing.transcript import Case, Mismatch, read_cases, run_case

__all__ = [
    "Advance", "Case", "Crash", "Driver", "End", "Harness", "Idle", "InputCase", "InputSuite",
    "Mismatch", "OutputCase", "OutputSuite", "Restart", "Send", "Step", "Watermark", "drive",
    "play", "read_cases", "run_case",
]  # fmt: skip
