"""The table in docs/guarantees.md is what the long checks have written, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools import evidence


def test_the_page_shows_the_recorded_runs() -> None:
    assert evidence.PAGE.read_text() == evidence.page()  # else: python -m tools.evidence


def test_a_recorded_run_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "FOLDER", tmp_path)
    evidence.record(
        "kills", "kills at every step", "make chaos", faults=27, records=3240, violations=0
    )
    assert "| kills at every step | `make chaos` | 27 | 3,240 | 0 |" in evidence.table()
