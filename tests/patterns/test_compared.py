"""The comparison with Flink CEP is true of Headrace: every row of its tables is run here."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.testing import Harness, read_cases

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "patterns-compared.md"
LINE = re.compile(r"^\| (?!case|Flink)(.+) \|$", re.MULTILINE)
SCHEMA = "k string, kind string, n bigint, label string, at timestamp"


class Row(NamedTuple):
    case: str
    code: str
    rows: str
    flink: str
    headrace: str
    verdict: str


LINES = [line.split(" | ") for line in LINE.findall(PAGE.read_text(encoding="utf-8"))]
ROWS = [Row(*line) for line in LINES if len(line) == 6]
SHOWN = [line for line in LINES if len(line) == 5]


def kinds(code: str) -> dict[str, str]:
    """`AB` and the like, as the conditions they stand for."""
    names = set(re.findall(r"\b[A-D]+\b", code))
    return {n: f"kind in ({', '.join(repr(c.lower()) for c in n)})" for n in names}


def written(code: str) -> hr.Pattern:
    text = code.strip("`")
    endless = ".within(None)" in text
    text = text.replace(".within(None)", "")
    made: hr.Pattern = eval(text, {"hr": hr, **kinds(text)})
    return made if ".within(" in text or endless else made.within("1h")


def sent(rows: str) -> list[tuple[Any, ...]]:
    found = []
    for second, word in enumerate(rows.split()):
        label, _, at = word.partition("@")
        number = int(label[1:] or 0)
        time = datetime.fromtimestamp(float(at or second), UTC)
        found.append(("k", label[0], number, label, time))
    return found


def matches(row: Row) -> str:
    job = hr.Job("compared")
    rows = job.read("log:x", schema=SCHEMA, time="at", delay="1s", name="rows")
    try:
        rows.key_by("k").match(
            written(row.code), select=lambda match: (" ".join(r.label for _, r in match.rows),),
            output="labels string", unbounded=True,
        ).write("collect:", name="out")  # fmt: skip
        job.check()
    except hr.PlanError as error:
        return f"refused {error.code}"
    with Harness(job) as test:
        test.send("rows", sent(row.rows))
        test.end()
        assert test.dead() == []
        return "; ".join(sorted(found["labels"] for found in test.output("out"))) or "-"


def plain(cell: str) -> str:
    return "; ".join(sorted(cell.split("; ")))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.case}, {row.rows}")
def test_what_the_page_says_of_us_is_so(row: Row) -> None:
    assert matches(row) == plain(row.headrace)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.case}, {row.rows}")
def test_we_agree_where_the_page_says_so(row: Row) -> None:
    same = plain(row.flink) == plain(row.headrace).split(" HR-")[0]
    assert row.verdict.startswith("agree" if same else "differ: "), row.verdict


def test_the_page_has_the_documented_cases() -> None:
    assert len(ROWS) >= 40 and len(SHOWN) >= 8


def test_every_transcript_that_is_named_exists() -> None:
    known = {f"`patterns`: {case.name}"
             for case in read_cases(ROOT / "tests" / "transcripts" / "patterns.yaml")}  # fmt: skip
    assert [line[-1] for line in SHOWN if line[-1] not in known] == []
