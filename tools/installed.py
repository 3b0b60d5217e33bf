"""`make installed`: tests/test_installed.py in its long form, and what came of it as evidence.

A Python that this machine does not have is named as not run.
"""

from __future__ import annotations

import os
import re
import sys

import pytest
from tools import evidence

ROWS = 30  # that the README's program writes, compared after each of two runs


class Tally:
    """Counts checks, and the environments in which they ran or could not be run."""

    def __init__(self) -> None:
        self.passed, self.failed = 0, 0
        self.ran: set[str] = set()
        self.not_run: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        environment = re.sub(r".*\[(.*)\]", r"\1", report.nodeid)
        if report.skipped:
            self.not_run.add(environment)
        elif report.failed:
            self.failed += 1
        elif report.when == "call":
            self.passed += 1
            self.ran.add(environment)


def main(arguments: list[str]) -> int:
    os.environ["HEADRACE_INSTALLED"] = "all"
    tally = Tally()
    code = pytest.main(["-v", "-rs", "tests/test_installed.py", *arguments], plugins=[tally])
    if tally.ran:
        check = f"installed into empty environments: {', '.join(sorted(tally.ran))}"
        if tally.not_run:
            check += f"; not run: {', '.join(sorted(tally.not_run))}"
        evidence.record(
            "installed", check, "make installed", faults=tally.passed + tally.failed,
            records=2 * ROWS * len(tally.ran), violations=tally.failed,
        )  # fmt: skip
    return int(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
