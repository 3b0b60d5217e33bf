"""For tests of streaming programs: a job run in this process, without Spark or a JVM."""

from headrace.testing.drive import Driver, drive
from headrace.testing.harness import Harness

__all__ = ["Driver", "Harness", "drive"]
