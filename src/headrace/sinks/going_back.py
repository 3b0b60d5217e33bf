"""Taking back what a files output has of timelines that were given up: exactly, in one step.

    1 finish what the snapshot in force began
    2 of each merged file with rows from before and after, write the rows from before, hidden
    3 set the files that are taken back aside, in `_taken_back`, where no reader looks
    4 write a snapshot of the next revision, without them
    5 remove them from view, and rename the new ones into it

What is taken back is written again only as far as the inputs still have it; a file that was
read may be gone. So nothing is deleted here: what is set aside is the user's to remove.
It is a merge that leaves rows out: readers change over at 4, and a crash is mended the same
way. The snapshot has the newest epoch that was ever published, so what an earlier driver still
publishes does not count.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

import pyarrow as pa

from headrace.files import link_if_absent, sync_folder
from headrace.sinks import columns
from headrace.sinks.commits import (
    OutputFile,
    Record,
    Replaced,
    Slot,
    Spans,
    in_force,
    parts_of,
    retried,
    spans_of,
    store_spans,
)
from headrace.sinks.contract import EpochWriter, Timelines
from headrace.sinks.durable import check_bytes, folder_for, named, sync_folders, write
from headrace.sinks.file_formats import Format, format_of
from headrace.sinks.merging import FileMerging
from headrace.sinks.partitions import file_columns
from headrace.state.faults import point

ASIDE = "_taken_back"


@dataclass(frozen=True, slots=True)
class Taken:
    """What was taken back from one chain."""

    rows: int
    first: int  # the epochs
    last: int


def go_back(
    merging: FileMerging, timelines: Timelines, newest: Record, writer: EpochWriter
) -> Taken | None:
    """Take back what a chain has that does not count; `newest` says whose chain it is."""
    merging.recover(writer)
    return retried(merging.target, lambda: _go_back(merging, timelines, newest, writer))


def describe_taken(output: str, target: Path, taken: Sequence[Taken]) -> str:
    if not taken:
        return f"output {output!r}: nothing has to be taken back from {str(target)!r}"
    first, last = min(t.first for t in taken), max(t.last for t in taken)
    return (
        f"output {output!r}: {sum(t.rows for t in taken)} rows of epochs {first} to {last} are "
        f"taken back from {str(target)!r}, and their files are set aside in {ASIDE!r} there"
    )


def _go_back(
    merging: FileMerging, timelines: Timelines, newest: Record, writer: EpochWriter
) -> Taken | None:
    names = in_force(merging.commits.names(merging.chain))
    parts = list(parts_of(merging.commits.read_chain(names)))
    ahead = [p for p in parts if p.last > timelines.upto(p.timeline)]
    if not ahead:
        return None
    slot = Slot(names[-1].epoch, names[-1].revision + 1 if names[-1].revision is not None else 0)
    mixed = [(p, upto) for p in ahead if p.epoch <= (upto := timelines.upto(p.timeline))]
    cut = [_cut_after(merging, p, upto, slot, writer) for p, upto in mixed]
    _set_aside(merging, ahead)
    point("sink.back.written")
    remaining = [*(p for p in parts if p not in ahead), *cut]
    snapshot = replace(
        newest,
        epoch=slot.epoch,
        parts=tuple(remaining),
        before=slot.epoch,
        token=writer.token,
        timeline=writer.timeline,
        revision=slot.revision,
        gone=tuple(sorted(p.place for p in ahead)),
    )
    merging.install(snapshot, writer)
    rows = sum(p.rows for p in parts) - sum(p.rows for p in remaining)
    first = min(max(p.epoch, timelines.upto(p.timeline) + 1) for p in ahead)
    return Taken(rows, first, max(p.last for p in ahead))


def _set_aside(merging: FileMerging, parts: Sequence[OutputFile]) -> None:
    """Give the files a second name; a start that crashed may have done so for some."""
    aside = folder_for(merging.target / ASIDE)
    for part in parts:
        folder_for(aside / part.folder)
        with named(aside / part.place):
            try:
                _link_or_copy(merging.find(part), aside / part.place)
            except FileNotFoundError as cause:
                raise Replaced(part.place) from cause
    sync_folders(aside, (p.folder for p in parts))


def _link_or_copy(path: Path, second: Path) -> None:
    """A link to the file; a copy where the file system has no links."""
    try:
        link_if_absent(path, second)
    except FileNotFoundError:
        raise
    except OSError:
        half = second.with_name(f".{second.name}")
        half.unlink(missing_ok=True)
        with path.open("rb") as file:
            write(half, lambda out: shutil.copyfileobj(file, out))
        half.rename(second)


def _cut_after(
    merging: FileMerging, part: OutputFile, epoch: int, slot: Slot, writer: EpochWriter
) -> OutputFile:
    """A file with the rows of a merged one that are of `epoch` and before."""
    format, path = format_of(part.file), merging.find(part)
    check_bytes(path, part.bytes, part.crc)
    runs = spans_of(merging.commits.folder, part)
    folder = merging.commits.folder
    stored = columns.stored(folder)
    schema = file_columns(columns.of_file(part, folder, merging.chain, stored))
    file = merging.fresh(slot, part, part.level, writer) + format.suffix
    hidden = merging.hidden / file
    written = write(hidden, lambda out: _copy(out, format, path, schema, runs, epoch))
    left = [run for run in runs if run[0] <= epoch]
    store_spans(merging.commits.folder, file, left)
    with named(merging.hidden):
        sync_folder(merging.hidden)
    return replace(
        part,
        file=file,
        rows=written.result,
        bytes=written.size,
        crc=written.crc,
        last=max(e for e, _ in left),
    )


def _copy(
    file: IO[bytes], format: Format, path: Path, schema: pa.Schema, runs: Spans, epoch: int
) -> int:
    """Write the rows of runs up to `epoch`; how many there are."""
    own, rows = format.schema(path) or schema, 0
    try:
        with closing(format.writer(file, own)) as writer:
            for table in _up_to(format.batches(path, schema), runs, epoch):
                writer.write_table(table)
                rows += table.num_rows
    except FileNotFoundError as cause:
        raise Replaced(path.name) from cause
    return rows


def _up_to(tables: Iterator[pa.Table], runs: Spans, epoch: int) -> Iterator[pa.Table]:
    """What is of `epoch` and before, of tables whose rows are of `runs`, one after the other."""
    left = iter(runs)
    of, remaining = next(left, (0, 0))
    for table in tables:
        at = 0
        while at < table.num_rows:
            if not remaining:
                of, remaining = next(left)
            count = min(remaining, table.num_rows - at)
            if of <= epoch:
                yield table.slice(at, count)
            at, remaining = at + count, remaining - count
