"""The guide's page about inputs and outputs is a program: it runs, and prints what it says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "guide" / "inputs-and-outputs.md"
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)


def test_the_page_runs_from_top_to_bottom_and_prints_what_it_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HEADRACE_LOG", raising=False)
    names: dict[str, object] = {"__name__": "guide"}
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    for code, expected in blocks:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, PAGE.name, "exec", dont_inherit=True), names)
        assert printed.getvalue() == expected, code
    assert len(blocks) == 5


def test_every_code_that_the_edges_raise_is_on_the_page_and_tested():
    source = "".join(p.read_text() for d in ("sources", "sinks")
                     for p in (ROOT / "src" / "headrace" / d).glob("*.py"))  # fmt: skip
    tests = "".join(p.read_text() for d in ("sources", "sinks")
                    for p in (ROOT / "tests" / d).glob("*.py"))  # fmt: skip
    raised = set(re.findall(r"HR-(?:INPUT|OUTPUT)-\d{3}", source))

    assert raised == set(re.findall(r"HR-(?:INPUT|OUTPUT)-\d{3}", PAGE.read_text()))
    assert raised <= set(re.findall(r"HR-(?:INPUT|OUTPUT)-\d{3}", tests))
