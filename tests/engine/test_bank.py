"""The bank of `bank.py`: 0 in every epoch of every output, with a crash at drawn steps."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from headrace.state import faults
from headrace.testing import Driver
from tests.engine.bank import SEED, Verdict, build, fill, wanted

TRANSFERS, BATCH, CRASHES = 20_000, 1_500, 12


class Crash(Exception):
    pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_all_balances_are_0_together_in_every_epoch(tmp_path: Path) -> None:
    fill(tmp_path, TRANSFERS)
    draw, crashed, seen = random.Random(SEED), 0, 0
    while True:
        left = draw.randrange(20, 90) if crashed < CRASHES else -1  # points until it crashes

        def hook(name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(name)

        try:
            with faults.hooked(hook):
                driver = Driver(build(tmp_path), tmp_path / "job", max_batch=BATCH)
                driver.drain()
        except Crash:
            crashed += 1
            if (tmp_path / "bank.db").exists():
                seen += bool(Verdict(tmp_path).rows)
                assert Verdict(tmp_path).violations == []
            continue
        break
    found = Verdict(tmp_path)
    assert found.violations == [] and crashed == CRASHES and seen > 3
    assert found.balances == wanted(TRANSFERS)
    assert driver.manifest is not None and driver.manifest.epoch >= TRANSFERS // BATCH
    assert found.pairs == Counter({(i, i): 1 for i in range(TRANSFERS)})
