"""Which rows of a merged file are of which epoch: a sealed file beside the records.

Rows are merged in order, so a few numbers say it: runs of (epoch, rows). It is what makes
going back exact. Written before the snapshot that names the merged file, removed after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from headrace.sinks.commits import Part, Replaced
from headrace.sinks.durable import damaged, folder_for, named
from headrace.state.sealed import create_sealed, read_sealed

SPANS = "output-rows"
SPANS_SUFFIX = ".rows"

Spans = list[tuple[int, int]]  # (epoch, rows), in order of rows


def spans_of(folder: Path, part: Part) -> Spans:
    if not part.level:
        return [(part.epoch, part.rows)]
    path = folder / f"{part.file}{SPANS_SUFFIX}"
    if not path.exists():
        raise Replaced(path.name)
    with named(path):
        spans = [(epoch, rows) for epoch, rows in read_sealed(path, SPANS)["spans"]]
    if sum(rows for _, rows in spans) != part.rows:
        raise damaged(path, f"it does not tell the epochs of {part.rows} rows")
    return spans


def store_spans(folder: Path, file: str, spans: Iterable[tuple[int, int]]) -> None:
    runs = groupby(spans, key=lambda span: span[0])
    joined = [(epoch, sum(rows for _, rows in run)) for epoch, run in runs]
    path = folder_for(folder) / f"{file}{SPANS_SUFFIX}"
    with named(path):
        create_sealed(path, SPANS, {"spans": joined})
