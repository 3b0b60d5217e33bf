"""Both contenders of the benchmarks give the same results, at sizes where time means nothing.

All jobs share one process per contender here, to start Spark twice and not for every job; the
benchmark itself gives each a process of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import import_module

import pytest
from bench.data import ROOT
from bench.measure import OURS, THEIRS, environment

pytestmark = pytest.mark.spark

CASES = {
    "a": ("a", {"keys": 20, "rate": 50}),
    "b sum": ("b", {"keys": 20, "kind": "sum"}),
    "b python": ("b", {"keys": 20, "kind": "python"}),
    "c": ("c", {}),
    "d": ("d", {"keys": 20}),
    "e": ("e", {"keys": 20, "rate": 25}),
    "f": ("f", {"keys": 500, "rate": 100}),
    "g": ("g", {}),
    "p": ("p", {}),
    "r": ("r", {"keys": 20}),
}
BATCH, BATCHES, CORES = 4_000, 2, 2


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Where each contender of each job left its output."""
    root = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.data.CACHE", root)
        params = {
            case: import_module(f"bench.jobs.{job}").params(BATCH, BATCHES, **sizes)
            for case, (job, sizes) in CASES.items()
        }
    for who in (OURS, THEIRS):
        arguments = []
        for case, (job, _) in CASES.items():
            place = root / who / case
            place.mkdir(parents=True)
            (place / "params.json").write_text(json.dumps({**params[case], "cores": CORES}))
            arguments += [job, str(place)]
        done = subprocess.run(
            [sys.executable, "-m", "bench.child", who, *arguments],
            cwd=ROOT, env=environment(), capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4_000:]
    return params, root


@pytest.mark.parametrize("case", CASES)
def test_both_contenders_give_the_same_result(places, case):
    params, root = places
    digest = import_module(f"bench.jobs.{CASES[case][0]}").digest

    ours, theirs = (digest(params[case], root / who / case) for who in (OURS, THEIRS))

    assert ours.rows > 0
    assert ours == theirs


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("who", [OURS, THEIRS])
def test_both_read_all_rows_in_as_many_batches(places, case, who):
    _, root = places
    figures = json.loads((root / who / case / "figures.json").read_text())
    rows = [rows for rows, *_ in figures["batches"] if rows]

    assert sum(rows) == BATCH * BATCHES
    assert len(rows) == BATCHES
