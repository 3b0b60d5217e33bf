"""What windows, time, triggers and state mean, as transcripts: in process, and on Spark.

Every case of every file here is played on both, one batch per step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.testing import Case, read_cases, run_case

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
CASES = [(file.stem, case) for file in FILES for case in read_cases(file)]


def named(cases: list[tuple[str, Case]]) -> list[Any]:
    return [pytest.param(case, id=f"{file}: {case.name}") for file, case in cases]


@pytest.mark.parametrize("case", named(CASES))
def test_in_process(case: Case) -> None:
    run_case(case)


@pytest.mark.spark
@pytest.mark.parametrize("case", named([(f, c) for f, c in CASES if c.spark]))
def test_on_spark(case: Case, spark: Any) -> None:
    run_case(case, on="spark")


def test_no_two_cases_have_one_name() -> None:
    names = [(file, case.name) for file, case in CASES]
    assert len(names) == len(set(names))
