"""Erasing rows from a files output: exactly, and in one step for its readers.

    1 finish what the snapshot in force began
    2 of each file that has such rows, write what stays, hidden
    3 write a snapshot of the next revision that names these files in their place
    4 remove the old ones, and rename the new ones into view
    5 write the snapshot once more without the names of what is gone: a folder's name is a value

It is a merge that leaves rows out, as going back is, and a crash is mended the same way. An epoch
of which nothing is left has no rows here any more: the job's manifests must know that before
(`ErasurePlan.epochs`), or its start would take the output for one that was lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from headrace.arrays import Mask
from headrace.errors import HeadraceError
from headrace.files import sync_folder
from headrace.sinks import columns
from headrace.sinks.commits import (
    OutputFile,
    Record,
    Slot,
    Spans,
    in_force,
    owner_of,
    parts_of,
    spans_of,
    store_spans,
)
from headrace.sinks.contract import EpochWriter
from headrace.sinks.durable import check_bytes, named, remove, write
from headrace.sinks.file_formats import Format, format_of
from headrace.sinks.formats import without_dictionaries
from headrace.sinks.going_back import ASIDE
from headrace.sinks.merging import FileMerging
from headrace.sinks.partitions import file_columns, with_values
from headrace.spare_bytes import has_spare, without_spare
from headrace.state.faults import point

Hits = Callable[[pa.Table], Mask]  # which rows are to go
Epochs = frozenset[tuple[str, int]]  # timelines and epochs of which there are rows


@dataclass(frozen=True, slots=True)
class _File:
    """A file with rows that are to go, or with bytes of rows that it has not."""

    part: OutputFile
    stays: Mask
    runs: Spans  # of what stays


@dataclass(frozen=True, slots=True)
class ErasurePlan:
    """What is to be erased of one chain."""

    merging: FileMerging
    files: tuple[_File, ...]
    before: Epochs
    epochs: Epochs  # once it is erased

    @property
    def rows(self) -> int:
        return sum(int(np.count_nonzero(~file.stays)) for file in self.files)


def plan_erasure(merging: FileMerging, hits: Hits) -> ErasurePlan:
    """What a chain has of them; nothing is changed."""
    folder = merging.commits.folder
    files, before, after = list[_File](), set[tuple[str, int]](), set[tuple[str, int]]()
    for part in parts_of(merging.commits.current(merging.chain)):
        runs = spans_of(folder, part)
        before |= {(part.timeline, epoch) for epoch, _ in runs}
        stays = ~hits(_rows(merging, part))
        spare = _has_spare(format_of(part.file), merging.find(part), _columns(merging, part))
        left = list(_left(runs, stays))
        after |= {(part.timeline, epoch) for epoch, _ in left}
        if spare or not stays.all():
            files.append(_File(part, stays, left))
    return ErasurePlan(merging, tuple(files), frozenset(before), frozenset(after))


def _rows(merging: FileMerging, part: OutputFile) -> pa.Table:
    path, schema = merging.find(part), _columns(merging, part)
    check_bytes(path, part.bytes, part.crc)
    tables = format_of(part.file).batches(path, file_columns(schema))
    plain = [t.cast(without_dictionaries(t.schema)) for t in tables]
    return (
        with_values(pa.concat_tables(plain), part.folder, schema) if plain else schema.empty_table()
    )


def _has_spare(format: Format, path: Path, schema: pa.Schema) -> bool:
    """Of Arrow files: others have the values of their rows, one by one."""
    arrow = path.suffix == ".arrow"
    return arrow and any(map(has_spare, format.batches(path, file_columns(schema))))


def _columns(merging: FileMerging, part: OutputFile) -> pa.Schema:
    folder = merging.commits.folder
    return columns.of_file(part, folder, merging.chain, columns.stored(folder))


def _left(runs: Spans, stays: Mask) -> Iterator[tuple[int, int]]:
    at = 0
    for epoch, rows in runs:
        left = int(np.count_nonzero(stays[at : at + rows]))
        at += rows
        if left:
            yield epoch, left


def erase(plan: ErasurePlan, writer: EpochWriter) -> None:
    """Carry it out; `writer` is the holder of the job's fence."""
    merging = plan.merging
    merging.recover(writer)
    if plan.files:
        names = in_force(merging.commits.names(merging.chain))
        newest = merging.commits.read(names[-1])
        parts = list(parts_of(merging.commits.read_chain(names)))
        slot = Slot(names[-1].epoch, 1 + (-1 if (r := names[-1].revision) is None else r))
        gone = {file.part.place for file in plan.files}
        fresh = [_written(merging, file, slot, writer) for file in plan.files if file.runs]
        point("sink.erase.written")
        left = [*(p for p in parts if p.place not in gone), *fresh]
        snapshot = replace(
            newest,
            epoch=slot.epoch,
            parts=tuple(left),
            before=slot.epoch,
            token=writer.token,
            timeline=writer.timeline,
            revision=slot.revision,
            gone=tuple(sorted(gone)),
        )
        merging.install(snapshot, writer)
        point("sink.erase.installed")
    _forget_names(merging, writer)
    _sweep(merging, writer)


def _written(merging: FileMerging, file: _File, slot: Slot, writer: EpochWriter) -> OutputFile:
    """What stays of a file, in a hidden one."""
    part, format = file.part, format_of(file.part.file)
    level = max(part.level, 1)
    name = merging.fresh(slot, part, level, writer) + format.suffix
    schema = file_columns(_columns(merging, part))
    path = merging.hidden / name
    merging.hidden.mkdir(parents=True, exist_ok=True)
    written = write(path, partial(_copy, format, merging.find(part), schema, file.stays))
    store_spans(merging.commits.folder, name, file.runs)
    with named(merging.hidden):
        sync_folder(merging.hidden)
    return replace(
        part,
        file=name,
        rows=int(np.count_nonzero(file.stays)),
        bytes=written.size,
        crc=written.crc,
        epoch=file.runs[0][0],
        last=max(epoch for epoch, _ in file.runs),
        level=level,
    )


def _copy(format: Format, path: Path, schema: pa.Schema, stays: Mask, file: IO[bytes]) -> None:
    at = 0
    with closing(format.writer(file, format.schema(path) or schema)) as writer:
        for table in format.batches(path, schema):
            left = table.filter(pa.array(stays[at : at + table.num_rows]))
            writer.write_table(without_spare(left))
            at += table.num_rows


def _forget_names(merging: FileMerging, writer: EpochWriter) -> None:
    """Records without the names of files that are gone: a folder's name is a value."""
    force = in_force(merging.commits.names(merging.chain))
    records = merging.commits.read_chain(force)
    if any(record.gone for record in records):
        revision = 1 + (-1 if (r := force[-1].revision) is None else r)
        parts = tuple(parts_of(records))
        epoch = force[-1].epoch
        named = replace(records[-1], epoch=epoch, before=epoch, revision=revision, parts=parts)
        merging.install(replace(named, gone=()), writer)
    live = {part.file for part in parts_of(records)}
    for name in merging.commits.names(merging.chain):
        if not name.is_snapshot:  # of the snapshot's own epoch: by it a loss is noticed
            record: Record = merging.commits.read(name)
            kept = tuple(part for part in record.parts if part.file in live)
            if len(kept) < len(record.parts):
                writer.check()
                merging.commits.rewrite(replace(record, parts=kept))


def _sweep(merging: FileMerging, writer: EpochWriter) -> None:
    """Nobody stages here now: what is hidden is left over."""
    writer.check()
    if merging.hidden.is_dir():
        for path in merging.hidden.iterdir():
            remove(path)


def remove_empty_folders(target: Path) -> None:
    """Folders of values that have no file any more, also where files were set aside."""
    for folder, _, _ in os.walk(target, topdown=False):
        if "=" in os.path.basename(folder):
            with suppress(OSError):  # it is not empty
                os.rmdir(folder)


def erase_aside(merging: FileMerging, hits: Hits, *, dry_run: bool = False) -> int:
    """Erase rows from files that were taken back, which no record names; how many they were.

    A file that cannot be read stays as it is.
    """
    aside, found = merging.target / ASIDE, 0
    for path in sorted(aside.rglob("*")) if aside.is_dir() else ():
        owner = owner_of(path.name)
        if owner is None or owner[0] != merging.chain or not path.is_file():
            continue
        known = columns.stored(merging.commits.folder)
        schemas = [schema for (chain, _), schema in known.items() if chain == merging.chain]
        below = path.parent.relative_to(aside).as_posix()
        folder = "" if below == "." else below
        for schema in schemas:
            stays = _stays(path, folder, schema, hits)
            if stays is not None:
                found += int(np.count_nonzero(~stays))
                spare = _has_spare(format_of(path.name), path, schema)
                if (spare or not stays.all()) and not dry_run:
                    _replace(path, schema, stays)
                break
    return found


def _stays(path: Path, folder: str, schema: pa.Schema, hits: Hits) -> Mask | None:
    try:
        tables = format_of(path.name).batches(path, file_columns(schema))
        plain = [t.cast(without_dictionaries(t.schema)) for t in tables]
        table = pa.concat_tables(plain) if plain else file_columns(schema).empty_table()
        return ~hits(with_values(table, folder, schema))
    except (HeadraceError, pa.ArrowException, ValueError, KeyError):
        return None


def _replace(path: Path, schema: pa.Schema, stays: Sequence[bool] | Mask) -> None:
    format, hidden = format_of(path.name), path.with_name(f".{path.name}")
    hidden.unlink(missing_ok=True)
    if np.any(stays):
        keep = np.asarray(stays)
        write(hidden, partial(_copy, format, path, file_columns(schema), keep))
        with named(path):
            hidden.rename(path)
            sync_folder(path.parent)
    else:
        remove(path)
