"""kill -9 of everything, of the JVM, and of the driver, at each durable step of a batch.

Every case is a job of its own. Where only one of them dies, the others live on for a moment
and may even finish the batch, while the next start is under way already: what they still do
must not count twice, and nobody may be left in the end. A case costs two starts of Spark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.driver.crashing import ROWS
from tests.engine.killing import (
    OFTEN,
    STEPS,
    Contents,
    check_in_the_end,
    check_so_far,
    left_behind,
    start,
    undisturbed,
)
from tools.evidence import record

pytestmark = pytest.mark.spark
BATCH = 30  # rows: 4 epochs
VICTIMS = {"everything": ("1", 1), "jvm": ("java", 2), "driver": ("leader", 3)}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    return undisturbed(tmp_path_factory.mktemp("wanted"), BATCH)


@pytest.fixture(scope="module")
def recoveries(request: pytest.FixtureRequest) -> Iterator[list[float]]:
    """Seconds from each start after a kill to the job's end; totals are told when all are done."""
    before, found = request.session.testsfailed, list[float]()
    yield found
    violations = request.session.testsfailed - before
    if len(found) + violations >= len(STEPS) * len(VICTIMS):  # all of them, not a choice
        record(
            "kills", "kill -9 of driver, JVM or all at each durable step", "make chaos",
            faults=len(found), records=len(found) * len(ROWS), violations=violations,
        )  # fmt: skip
    capture = request.config.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print(
            f"\n{len(found)} faults, {len(found) * len(ROWS):,} records, "
            f"{violations} violations, worst recovery "
            f"{max(found, default=0):.1f} s (Spark's start and the job's end included)"
        )


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("who", VICTIMS)
def test_nothing_is_lost_or_doubled(
    step: str, who: str, tmp_path: Path, wanted: Contents, recoveries: list[float]
) -> None:
    victims, epoch = VICTIMS[who]
    nth = 7 * epoch - 1 if step in OFTEN else epoch
    order = tmp_path / "order"
    order.write_text(f"{step}:{nth}")
    killed = start(str(tmp_path), str(BATCH), crash=f"@{order}", victims=victims)
    assert killed.code == (1 if who == "jvm" else -9), killed.told
    assert not order.exists(), f"{step} was passed less than {nth} times"
    if who == "jvm":
        assert "HR-RUN-006" in killed.told
    else:
        check_so_far(tmp_path, wanted)
    began = time.monotonic()
    again = start(str(tmp_path), str(BATCH))
    recoveries.append(time.monotonic() - began)
    assert again.code == 0, again.told
    check_in_the_end(tmp_path, wanted)
    assert left_behind(killed.session, within=30) == left_behind(again.session, within=30) == []
