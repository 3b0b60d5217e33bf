"""The kinds of files that a job, its outputs and the log are made of.

Every file under a world's root is of exactly one kind; one that is of none is a kind that was
forgotten here, and fails the check.
"""

from __future__ import annotations

import re
from pathlib import Path

_EPOCH, _CHAIN, _TOPIC = r"\d{12}", r"[0-9a-f]{12}", r"log/\w+"
_LINES = r"job/inputs/\w+/lines"
_OUTPUT = r"(?:parquet|json|firsts|job/dead|job/collect/\w+)"
_PART = r"[\w%-]+\.(?:parquet|json|arrow)"

KINDS = {
    "job": r"job/job\.json",
    "manifest": rf"job/epochs/{_EPOCH}\.json",
    "fence": r"job/fence/\d+\.json",
    "published": r"job/published",
    "time of publishing": r"job/publishing\.json",
    "identity of the folder": r"job/outputs/identity",
    "run": r"job/runs/[\w-]+\.run",
    "staged for a topic": r"job/staged/(?:counted|numbers)/[\w%-]+\.arrows",
    "staged for the console": rf"job/staged/console/{_PART}",
    "list of files": r"job/inputs/\w+/files",
    "first start": r"job/inputs/\w+/first-start",
    "topic of lines received": rf"{_LINES}/topic\.json",
    "head of lines received": rf"{_LINES}/head",
    "segment of lines received": rf"{_LINES}/\d{{20}}\.log",
    "index of lines received": rf"{_LINES}/\d{{20}}\.index",
    "lock of lines received": r"job/inputs/\w+/(?:receiving|lines/sync|lines/write)",
    "staged for files": rf"{_OUTPUT}/_staging/{_CHAIN}/{_PART}",
    "record": rf"{_OUTPUT}/_commits/{_EPOCH}\.{_CHAIN}\.json",
    "snapshot": rf"{_OUTPUT}/_commits/{_EPOCH}\.{_CHAIN}\.all\.\d+\.json",
    "columns": rf"{_OUTPUT}/_commits/{_CHAIN}\.{_CHAIN}\.schema",
    "rows of a merged file": rf"{_OUTPUT}/_commits/merged-{_PART}\.rows",
    "published file": rf"{_OUTPUT}/part-{_PART}",
    "merged file": rf"{_OUTPUT}/merged-{_PART}",
    "topic": rf"{_TOPIC}/topic\.json",
    "head of a topic": rf"{_TOPIC}/head",
    "segment": rf"{_TOPIC}/\d{{20}}\.log",
    "index of a segment": rf"{_TOPIC}/\d{{20}}\.index",
    "lock of a topic": rf"{_TOPIC}/(?:sync|write)",
}
_FOREIGN = r"in/\d+\.json"  # what the user gives: not ours to protect


def files_by_kind(root: Path) -> dict[str, list[Path]]:
    """Every file of ours under `root`, oldest first."""
    found: dict[str, list[Path]] = {}
    for path in sorted(p for p in root.rglob("*") if p.is_file()):
        place = path.relative_to(root).as_posix()
        if not re.fullmatch(_FOREIGN, place):
            found.setdefault(kind_of(place), []).append(path)
    return found


def kind_of(place: str) -> str:
    kinds = [kind for kind, pattern in KINDS.items() if re.fullmatch(pattern, place)]
    if len(kinds) != 1:
        raise LookupError(f"{place!r} is of the kinds {kinds}: list it in damage/kinds.py")
    return kinds[0]
