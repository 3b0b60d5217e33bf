"""Windows that rows end, with triggers, evictors, modes and stored values, against their model.

HEADRACE_EXAMPLES=500 runs 500 sequences of each kind of window.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.windows.cases import ROW_WINDOWS, SECOND, build, row_cases
from tests.windows.driving import drive, streams

SEQUENCES = int(os.environ.get("HEADRACE_EXAMPLES", "0"))
KEYS = 25  # sequences that share a job
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": [Phase.explicit, Phase.reuse, Phase.generate], "database": None,
    "print_blob": True, "suppress_health_check": list(HealthCheck),
}  # fmt: skip


@pytest.mark.parametrize("windows", ROW_WINDOWS)
@settings(max_examples=max(-(-SEQUENCES // KEYS), 3), **OPTIONS)
@given(data=st.data())
def test_they_show_what_the_model_says(windows: str, data: Any) -> None:
    drive(data.draw(row_cases(windows)), data.draw(streams(SECOND, 0, KEYS)))


@settings(max_examples=max(-(-SEQUENCES // KEYS), 4), **OPTIONS)
@given(data=st.data())
def test_a_trigger_that_is_asked_for_each_row(data: Any) -> None:
    windows = data.draw(st.sampled_from([*ROW_WINDOWS]))
    drive(data.draw(row_cases(windows, per_row=True)), data.draw(streams(SECOND, 0, KEYS)))


@settings(max_examples=max(-(-SEQUENCES // KEYS), 2), **OPTIONS)
@given(data=st.data())
def test_without_a_key(data: Any) -> None:
    case = data.draw(row_cases(data.draw(st.sampled_from([*ROW_WINDOWS]))))
    drive(case, data.draw(streams(SECOND, 0, 5)).without_keys(), build)
