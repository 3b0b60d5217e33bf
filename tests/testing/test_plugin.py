"""The fixtures as a project gets them that has Headrace installed."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PROGRAM = """
import headrace as hr

def job():
    job = hr.Job("program")
    rows = job.read("log:nowhere", schema="v bigint", name="rows")
    rows.where("v > 1").write("log:elsewhere", name="out")
    return job
"""

TESTS = """
from pathlib import Path
from program import job

folders = []

def test_the_fixture_makes_harnesses(harness):
    one, two = harness(job()), harness(job(), tasks=1)
    one.send("rows", [(1,), (2,)])
    two.send("rows", [(3,)])
    assert one.output() == [{"v": 2}] and two.output() == [{"v": 3}]
    folders.extend([one._folder, two._folder])
    assert all(f.exists() for f in folders)

def test_they_are_closed_after_the_test():
    assert len(folders) == 2 and not any(f.exists() for f in folders)
"""


def test_a_project_has_the_fixtures(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(program=PROGRAM, test_program=TESTS)
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=2)
    listed = pytester.runpytest_subprocess("--fixtures", "-q")
    listed.stdout.fnmatch_lines(["harness*", "spark_harness*"])


def test_pytest_starts_without_importing_headrace(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys

        def test_nothing_heavy_is_there():
            assert "headrace_pytest" in sys.modules
            assert not {"headrace", "pyarrow", "numpy", "duckdb", "pyspark"} & set(sys.modules)
        """
    )
    pytester.runpytest_subprocess("-q").assert_outcomes(passed=1)
