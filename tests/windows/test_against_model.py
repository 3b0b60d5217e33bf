"""Windows of time against their model: every assigner with every kind of trigger.

HEADRACE_EXAMPLES=500 runs 500 sequences of each pair, which takes about a quarter of an hour.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.windows.cases import ASSIGNERS, TRIGGERS, cases
from tests.windows.driving import drive, streams

SEQUENCES = int(os.environ.get("HEADRACE_EXAMPLES", "0"))
KEYS = 40  # sequences that share a job
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # shrinking whole jobs takes minutes
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": PHASES, "database": None, "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


@pytest.mark.skipif(SEQUENCES > 0, reason="the test below tries every trigger")
@pytest.mark.parametrize("assigners", ASSIGNERS)
@settings(max_examples=4, **OPTIONS)
@given(data=st.data())
def test_windows_show_what_the_model_says(assigners: str, data: Any) -> None:
    tried(assigners, data.draw(st.sampled_from([*TRIGGERS])), data)


@pytest.mark.skipif(not SEQUENCES, reason="set HEADRACE_EXAMPLES to the number of sequences")
@pytest.mark.parametrize("triggers", TRIGGERS)
@pytest.mark.parametrize("assigners", ASSIGNERS)
@settings(max_examples=max(-(-SEQUENCES // KEYS), 1), **OPTIONS)
@given(data=st.data())
def test_with_every_trigger_too(assigners: str, triggers: str, data: Any) -> None:
    tried(assigners, triggers, data)


def tried(assigners: str, triggers: str, data: Any) -> None:
    unit, first, _ = ASSIGNERS[assigners]
    case = data.draw(cases(assigners, triggers))
    drive(case, data.draw(streams(unit, first, KEYS)))
