"""Patterns against their definition, feature by feature.

HEADRACE_EXAMPLES=500 runs 500 sequences of each feature.
"""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.patterns.cases import FEATURES
from tests.patterns.driving import drive, streams

SEQUENCES = int(os.environ.get("HEADRACE_EXAMPLES", "0"))
KEYS = 25  # sequences that share a job
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]  # shrinking whole jobs takes minutes
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": PHASES, "database": None, "print_blob": True,
    "suppress_health_check": list(HealthCheck),
}  # fmt: skip


@pytest.mark.parametrize("feature", FEATURES)
@settings(max_examples=max(-(-SEQUENCES // KEYS), 2), **OPTIONS)
@given(data=st.data())
def test_a_pattern_finds_what_its_definition_says(feature: str, data: Any) -> None:
    drive(data.draw(FEATURES[feature]), data.draw(streams(KEYS)))
