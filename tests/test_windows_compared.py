"""The comparison with other engines rests on transcripts that exist, which are run elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

from headrace.testing.transcript import read_cases

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "windows-compared.md"
ROW = re.compile(r"^\| (?!situation)(.+) \|$", re.MULTILINE)


def situations() -> list[list[str]]:
    return [row.split(" | ") for row in ROW.findall(PAGE.read_text(encoding="utf-8"))]


def test_every_situation_says_whether_we_agree_and_names_its_transcript() -> None:
    found = situations()
    assert len(found) >= 25
    for situation, *_, verdict, shown in found:
        assert verdict.startswith(("agree", "differ")), situation
        assert shown == "none" or re.fullmatch(r"`\w+`: .+", shown), situation


def test_every_transcript_that_is_named_exists() -> None:
    files = (ROOT / "tests" / "transcripts").glob("*.yaml")
    known = {f"`{file.stem}`: {case.name}" for file in files for case in read_cases(file)}
    assert [s[-1] for s in situations() if s[-1] != "none" and s[-1] not in known] == []
