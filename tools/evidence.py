"""What the long checks found, and the table of it in docs/guarantees.md.

A check that runs under its own verb ends with `record(...)`, which writes one small file into
docs/evidence; `python -m tools.evidence` writes the table between the two marks of
docs/guarantees.md from these files. A test holds the page against the files, so no figure in
that table is written by hand.
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "evidence"
PAGE = ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- evidence: begin -->\n", "<!-- evidence: end -->\n"
HEAD = "| check | command | faults | records | violations | commit | date |\n" + "|---" * 7 + "|\n"


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run of one check: `faults` injected (or cases tried), `records` compared."""

    check: str
    command: str
    faults: int
    records: int
    violations: int
    commit: str
    date: str

    def __str__(self) -> str:
        return (
            f"| {self.check} | `{self.command}` | {self.faults:,} | {self.records:,} "
            f"| {self.violations:,} | {self.commit} | {self.date} |\n"
        )


def record(
    name: str, check: str, command: str, *, faults: int, records: int, violations: int
) -> Evidence:
    """Write what a check found to docs/evidence/<name>.json, in place of its run before."""
    found = Evidence(
        check, command, faults, records, violations, _commit(), f"{datetime.now(UTC):%Y-%m-%d}"
    )
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(asdict(found), indent=1) + "\n")
    return found


def table() -> str:
    """The table of all recorded runs, one row for each check."""
    files = sorted(FOLDER.glob("*.json"))
    return HEAD + "".join(str(Evidence(**json.loads(file.read_text()))) for file in files)


def page() -> str:
    """docs/guarantees.md with its table written anew."""
    before, rest = PAGE.read_text().split(BEGIN)
    return f"{before}{BEGIN}{table()}{END}{rest.split(END)[1]}"


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip() or "unknown"


if __name__ == "__main__":
    PAGE.write_text(page())
