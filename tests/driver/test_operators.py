"""Every operator against its model, in process: random rows, batches, tasks and restarts."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Driver
from tests.driver.programs import CASES, IN_ORDER, OUT, SCHEMA, Case, expected, make, multiset

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking whole jobs takes minutes

rows_strategy = st.lists(
    st.fixed_dictionaries(
        {
            "k": st.sampled_from(["a", "b", "ä", ""]),
            "v": st.none() | st.integers(-5, 12),
            "step": st.integers(0, 4_000),
            "back": st.integers(0, 4_900),  # disorder below the delay: nothing is late
            "tag": st.none() | st.sampled_from(["x", "y", "zß"]),
        }
    ),
    max_size=40,
)


def stream(drawn: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows in order of arrival, up to 4.9 s out of order."""
    rows, clock = [], -20_000
    for offset, row in enumerate(drawn):
        clock += row["step"]
        rows.append(
            {"k": row["k"], "v": row["v"], "at": clock - row["back"], "tag": row["tag"],
             "split": 0, "offset": offset}
        )  # fmt: skip
    return rows


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(drawn=rows_strategy, batch=st.integers(1, 25), data=st.data())
def test_gives_what_the_model_says_under_any_batches_tasks_and_restarts(
    case: Case, drawn: list[dict[str, Any]], batch: int, data: st.DataObject
) -> None:
    if case in IN_ORDER:  # they see rows as they come: across batches order is arrival
        drawn = [{**d, "back": 0} for d in drawn]
    rows = stream(drawn)
    source = hr.rows([{n: r[n] for n in SCHEMA.names} for r in rows], SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        progress = None
        while True:  # every start runs a few epochs, with its own number of tasks
            driver = Driver(
                make(case, source),
                Path(folder),
                tasks=data.draw(st.integers(1, 3)),
                max_batch=batch,
            )
            for _ in range(data.draw(st.integers(1, 4))):
                step = driver.epoch()
                progress = step or progress
                if step is None:
                    break
            if progress is None or progress.ended:
                break
        assert multiset(driver.output(OUT)) == expected(case, rows)
        assert_accounts(driver)


def assert_accounts(driver: Driver) -> None:
    """read = used + filtered + late + dead."""
    assert driver.manifest is not None
    for counts in driver.manifest.counts.values():
        fates = ("used", "filtered", "late", "dead")
        assert counts["read"] == sum(counts[f] for f in fates)
