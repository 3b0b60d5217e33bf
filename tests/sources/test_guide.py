"""The guide's page about inputs and outputs names every error that they raise."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "inputs-and-outputs.md"


def test_every_code_that_the_edges_raise_is_on_the_page_and_tested():
    source = "".join(p.read_text() for d in ("sources", "sinks")
                     for p in (ROOT / "src" / "headrace" / d).glob("*.py"))  # fmt: skip
    tests = "".join(p.read_text() for d in ("sources", "sinks")
                    for p in (ROOT / "tests" / d).glob("*.py"))  # fmt: skip
    raised = set(re.findall(r"HR-(?:INPUT|OUTPUT)-\d{3}", source))

    assert raised == set(re.findall(r"HR-(?:INPUT|OUTPUT)-\d{3}", PAGE.read_text()))
    assert raised <= set(re.findall(r"HR-(?:INPUT|OUTPUT)-\d{3}", tests))
