"""For tests of streaming programs: jobs in this process or on Spark, step by step.

Plan, operators, state and commits are always the real ones; see `harness.py` for what is
not. Neither Spark nor PyYAML is imported before a test asks for it.
"""

from headrace.testing.drive import Driver, drive
from headrace.testing.harness import Harness
from headrace.testing.transcript import Case, read_cases, run_case
from headrace.testing.verbs import Mismatch

__all__ = ["Case", "Driver", "Harness", "Mismatch", "drive", "read_cases", "run_case"]
