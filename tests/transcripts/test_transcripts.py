"""What windows, time, triggers and state mean, as transcripts: in process, and on Spark.

Every case of every file here is played in process, one batch per step, and every fifth of a file
on Spark; `HEADRACE_LONG=1 make test ARGS=tests/transcripts` plays all of them there.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headrace.testing import Case, read_cases, run_case

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
EACH = 1 if os.environ.get("HEADRACE_LONG") else 5
CASES = [(file.stem, case) for file in FILES for case in read_cases(file)]


def named(cases: list[tuple[str, Case]]) -> list[Any]:
    return [pytest.param(case, id=f"{file}: {case.name}") for file, case in cases]


def on_spark() -> list[tuple[str, Case]]:
    able = {f.stem: [c for file, c in CASES if file == f.stem and c.spark] for f in FILES}
    return [(file, case) for file, cases in able.items() for case in cases[::EACH]]


@pytest.mark.parametrize("case", named(CASES))
def test_in_process(case: Case) -> None:
    run_case(case)


@pytest.mark.spark
@pytest.mark.parametrize("case", named(on_spark()))
def test_on_spark(case: Case, spark: Any) -> None:
    run_case(case, on="spark")


def test_no_two_cases_have_one_name() -> None:
    names = [(file, case.name) for file, case in CASES]
    assert len(names) == len(set(names))
