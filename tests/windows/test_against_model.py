"""Windows of time against their model: every assigner with every kind of trigger.

HEADRACE_EXAMPLES=500 runs 500 sequences of each pair, which takes about a quarter of an hour.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.windows.cases import ASSIGNERS, TRIGGERS, build, cases
from tests.windows.driving import drive, streams

SEQUENCES = int(os.environ.get("HEADRACE_EXAMPLES", "0"))
KEYS = 40  # sequences that share a job
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # shrinking whole jobs takes minutes
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": PHASES, "database": None, "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


@pytest.mark.parametrize("triggers", TRIGGERS if SEQUENCES else ["any"])
@pytest.mark.parametrize("assigners", ASSIGNERS)
@settings(max_examples=max(-(-SEQUENCES // KEYS), 4), **OPTIONS)
@given(data=st.data())
def test_windows_show_what_the_model_says(assigners: str, triggers: str, data: Any) -> None:
    if triggers == "any":
        triggers = data.draw(st.sampled_from([*TRIGGERS]))
    case = data.draw(cases(assigners, triggers))
    drive(case, data.draw(streams(*ASSIGNERS[assigners][:2], KEYS)))


@settings(max_examples=max(-(-SEQUENCES // KEYS), 10), **OPTIONS)
@given(data=st.data())
def test_a_trigger_that_is_asked_for_each_row(data: Any) -> None:
    assigners = data.draw(st.sampled_from([*ASSIGNERS]))
    case = data.draw(cases(assigners, data.draw(st.sampled_from([*TRIGGERS]))))
    drive(replace(case, per_row=True), data.draw(streams(*ASSIGNERS[assigners][:2], KEYS)))


@settings(max_examples=3, **OPTIONS)
@given(data=st.data())
def test_neither_tasks_nor_restarts_are_seen(data: Any) -> None:
    assigners = data.draw(st.sampled_from([*ASSIGNERS]))
    case = data.draw(cases(assigners, data.draw(st.sampled_from([*TRIGGERS]))))
    stream = data.draw(streams(*ASSIGNERS[assigners][:2], KEYS))
    for tasks in (1, 2, 3):
        drive(case, stream.started(tasks, again=tasks == 2))


@settings(max_examples=max(-(-SEQUENCES // KEYS), 5), **OPTIONS)
@given(data=st.data())
def test_windows_of_processing_time(data: Any) -> None:
    assigners = data.draw(st.sampled_from(["tumbling", "sliding", "session", "cumulating"]))
    case = data.draw(cases(assigners, data.draw(st.sampled_from([*TRIGGERS]))))
    function = data.draw(st.sampled_from(["agg", "count", "fold"]))  # they see no event time
    case = replace(case, lateness=0, function=function)
    stream = data.draw(streams(*ASSIGNERS[assigners][:2], KEYS))
    drive(
        case, stream, lambda rows, case: build(rows.key_by("k"), case, time="processing"),
        processing=True,
    )  # fmt: skip


@settings(max_examples=max(SEQUENCES // 20, 5), **OPTIONS)
@given(data=st.data())
def test_windows_without_a_key(data: Any) -> None:
    assigners = data.draw(st.sampled_from([*ASSIGNERS]))
    case = data.draw(cases(assigners, data.draw(st.sampled_from([*TRIGGERS]))))
    stream = data.draw(streams(*ASSIGNERS[assigners][:2], 5))
    drive(case, stream.without_keys(), build)
