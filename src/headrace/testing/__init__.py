"""For tests of streaming programs: a job run in this process, without Spark or a JVM."""

from headrace.testing.drive import Driver, drive

__all__ = ["Driver", "drive"]
