"""Taking back what a files output has published after an epoch: exactly, in one step.

    1 finish what the snapshot in force began
    2 of each merged file with rows from before and after, write the rows from before, hidden
    3 write a snapshot of the next revision, without the files that are taken back
    4 remove those files, and rename the new ones into view

It is a merge that leaves rows out: readers change over at 3, and a crash is mended the same
way. The snapshot has the newest epoch that was ever published, so what a driver of before
still publishes does not count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import IO

import pyarrow as pa

from headrace.sinks import columns, spans
from headrace.sinks.commits import Part, Record, Replaced, Slot, in_force, parts_of, retried
from headrace.sinks.contract import Writer
from headrace.sinks.durable import check_bytes, named, write
from headrace.sinks.encode import Format, format_of
from headrace.sinks.merging import Merging
from headrace.sinks.spans import Spans
from headrace.state.faults import point
from headrace.state.files import sync_folder


def go_back(merging: Merging, epoch: int, job: str, output: str, writer: Writer) -> str:
    """Take back what was published after `epoch`; says what was done."""
    merging.recover(writer)
    return retried(merging.target, lambda: _go_back(merging, epoch, job, output, writer))


def _go_back(merging: Merging, epoch: int, job: str, output: str, writer: Writer) -> str:
    names = in_force(merging.commits.names(merging.chain))
    records = merging.commits.force(names)
    parts = list(parts_of(records))
    ahead = [p for p in parts if p.last > epoch]
    if not ahead:
        return f"output {output!r} holds nothing of after epoch {epoch}"
    slot = Slot(names[-1].epoch, names[-1].revision + 1 if names[-1].revision is not None else 0)
    cut = [_without(merging, p, epoch, slot, writer) for p in ahead if p.epoch <= epoch]
    point("sink.back.written")
    kept = [*(p for p in parts if p.last <= epoch), *cut]
    gone = tuple(sorted(p.file for p in ahead))
    merging.take_force(
        Record(
            slot.epoch, merging.chain, tuple(kept), slot.epoch, writer.token, job, output,
            slot.revision, gone,
        ),
        writer,
    )  # fmt: skip
    rows = sum(p.rows for p in parts) - sum(p.rows for p in kept)
    last = max(p.last for p in ahead)
    return (
        f"output {output!r}: {rows} rows of epochs {epoch + 1} to {last} are taken back "
        f"from {str(merging.target)!r}"
    )


def _without(merging: Merging, part: Part, epoch: int, slot: Slot, writer: Writer) -> Part:
    """A file with the rows of a merged one that are of `epoch` and before."""
    format, path = format_of(part.file), merging.find(part)
    check_bytes(path, part.bytes, part.crc)
    runs = spans.spans_of(merging.commits.folder, part)
    schema = columns.stored(merging.commits.folder)[merging.chain, part.schema]
    file = merging.fresh(slot, part.level, writer) + format.suffix
    made = write(merging.hidden / file, lambda out: _copy(out, format, path, schema, runs, epoch))
    left = [run for run in runs if run[0] <= epoch]
    spans.store(merging.commits.folder, file, left)
    with named(merging.hidden):
        sync_folder(merging.hidden)
    return replace(
        part, file=file, rows=made.result, bytes=made.size, crc=made.crc,
        last=max(e for e, _ in left),
    )  # fmt: skip


def _copy(
    file: IO[bytes], format: Format, path: Path, schema: pa.Schema, runs: Spans, epoch: int
) -> int:
    """Write the rows of runs up to `epoch`; how many there are."""
    own, rows = format.schema(path) or schema, 0
    try:
        with closing(format.writer(file, own)) as writer:
            for table in _kept(format.batches(path, schema), runs, epoch):
                writer.write_table(table)
                rows += table.num_rows
    except FileNotFoundError as cause:
        raise Replaced(path.name) from cause
    return rows


def _kept(tables: Iterator[pa.Table], runs: Spans, epoch: int) -> Iterator[pa.Table]:
    """What is of `epoch` and before, of tables whose rows are of `runs`, one after the other."""
    left = iter(runs)
    of, rest = next(left, (0, 0))
    for table in tables:
        at = 0
        while at < table.num_rows:
            if not rest:
                of, rest = next(left)
            take = min(rest, table.num_rows - at)
            if of <= epoch:
                yield table.slice(at, take)
            at, rest = at + take, rest - take
