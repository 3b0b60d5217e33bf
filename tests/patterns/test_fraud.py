"""The fraud example finds what its generator planted, and nothing else."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from examples.fraud import Payment, payments

import headrace as hr
from headrace.cli.loading import load_job
from headrace.testing import Driver

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "fraud.py"


def test_the_example_is_a_program_of_at_most_eighty_lines() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 80


@pytest.mark.parametrize(("max_batch", "tasks"), [(1_000_000, 1), (700, 3)])
def test_the_frauds_that_were_planted_are_found(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any, max_batch: int, tasks: int
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_LOG", str(tmp_path / "log"))
    made, frauds = payments()
    log = hr.EmbeddedLog()
    log.create("payments", schema=Payment)
    log.append("payments", [asdict(payment) for payment in made])
    driver = Driver(load_job(EXAMPLE), tmp_path / "job", max_batch=max_batch, tasks=tasks)
    driver.drain()
    driver.close()
    rows = hr.read_output(".headrace/fraud/found").to_pylist()
    found = [(row["card"], row["small_at"], row["large_at"]) for row in rows]
    assert len(frauds) > 50
    assert len(found) == len(set(found)) and set(found) == frauds
    assert capsys.readouterr().out.count("alarms: card=card") == len(frauds)
