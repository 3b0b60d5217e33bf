"""What of a job's state is of a key, and the same state without it.

A step's rows are of a key if the step is keyed by its columns. What a step is keyed by, its facts
in the manifest say, so no program is needed, and a step that was dropped since is no exception.
Runs are never changed: a file with such rows is written again without them, under a new name, and
then the manifests and savepoints that name it are.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.arrays import Mask
from headrace.chunk import HASH, TIME
from headrace.key_match import KeyMatch
from headrace.spare_bytes import has_spare, without_spare
from headrace.state import sealed
from headrace.state.manifest import Manifest, StepFacts
from headrace.state.prune import RUNS
from headrace.state.runs import RunCache, RunRef, RunWriter
from headrace.state.spec import GONE
from headrace.state.store import Segment, SlotState

_ALIGN = 64  # of the blocks of a file
_OPERATOR, _SHARED = "operator", "shared."  # tables of a task, and those that all tasks share
_STORED = re.compile(r"v(\d+)")  # the column of that number, of a row that is stored


@dataclass(frozen=True)
class StoredTable:
    """A table of a step's state: how its columns are called there."""

    step: str
    table: str
    facts: StepFacts

    @property
    def keys(self) -> list[tuple[str, ...]]:
        """What the columns of its step's key are called, by the inputs, one after the other."""
        return key_columns(self.facts)

    def names(self, stored: Sequence[str]) -> dict[str, str]:
        """The columns of the key as the table has them, by each name that users give them."""
        if self.table == _OPERATOR or self.table.startswith(_SHARED):
            return {}  # its rows are not of keys, whatever their columns are called
        columns = [name for name in stored if name not in (TIME, HASH, GONE)]
        found = dict[str, str]()
        for i, users in enumerate(self.keys):
            here = next((n for n in (f"$k{i}", f"k{i}") if columns[i : i + 1] == [n]), None)
            if here is None:
                first = columns[i] if i < len(columns) and columns[i] in users else None
                here = first or next((n for n in users if n in columns), None)
            if here is not None:
                found |= dict.fromkeys(users, here)
        return found

    def hits(self, match: KeyMatch, rows: pa.Table) -> Mask:
        return match.rows(rows, self.names(rows.column_names))

    def shown(self, rows: pa.Table) -> pa.Table:
        """The rows with the names that users know, as far as they are stored."""
        called = {here: users for users, here in self.names(rows.column_names).items()}
        what = (self.facts.shape or {}).get("what")
        listed = what.get("columns") if isinstance(what, dict) else None
        pairs = listed if isinstance(listed, list) else []
        for name in rows.column_names:
            number = _STORED.fullmatch(name)
            if number and int(number[1]) < len(pairs) and isinstance(pairs[int(number[1])], list):
                called[name] = pairs[int(number[1])][0]
        left = rows.drop_columns([n for n in (HASH, GONE) if n in rows.column_names])
        return left.rename_columns([called.get(n, n) for n in left.column_names])


def key_columns(facts: StepFacts) -> list[tuple[str, ...]]:
    """By position: the names that the columns of a step's key have in its inputs."""
    shape = facts.shape or {}
    key = shape.get("key") or []
    if key and all(isinstance(column, list) for column in key):
        return [(column[0],) for column in key]
    edges = (shape.get("from") or {}).get("keys") or {}
    inputs = [names for names in edges.values() if names]
    return [tuple(dict.fromkeys(names)) for names in zip(*inputs, strict=False)]


def keyed_by(facts: StepFacts, match: KeyMatch) -> bool:
    """Whether a step is keyed by all columns of a key, and perhaps by more."""
    known = {name for names in key_columns(facts) for name in names}
    return match.columns.keys() <= known


# What is there


@dataclass(frozen=True)
class StateErasure:
    """What is to go from a job's state: nothing is changed before `write`."""

    folder: Path
    files: Mapping[str, Mapping[RunRef, StoredTable]]  # all that manifests name
    rows: Mapping[str, int]  # that are of the key, by step
    dirty: frozenset[str]  # files with such rows, with blocks that nothing names, or spare bytes

    def write(self, match: KeyMatch) -> dict[RunRef, RunRef | None]:
        """Write these files again; by what each run was named: its new name, None without rows."""
        cache, renamed = RunCache(self.folder), dict[RunRef, RunRef | None]()
        for file in sorted(self.dirty):
            writer = RunWriter(self.folder, f"{Path(file).stem[:40]}-{uuid.uuid4().hex[:12]}")
            for ref, table in self.files[file].items():
                rows = cache.raw(ref)
                stays = ~table.hits(match, rows)
                left = without_spare(rows.filter(pa.array(stays)))
                renamed[ref] = writer.add(left, ref.lo, ref.hi) if left.num_rows else None
            writer.close()
        return renamed


def look_at_state(folder: Path, manifests: Sequence[Manifest], match: KeyMatch) -> StateErasure:
    files, rows, dirty = runs_by_file(manifests), dict[str, int](), set[str]()
    cache = RunCache(folder)
    for file, refs in files.items():
        named = {ref.offset for ref in refs}
        if any(offset not in named for offset, _ in blocks(folder / RUNS / file)):
            dirty.add(file)
        for ref, table in refs.items():
            stored = cache.raw(ref)
            if count := int(table.hits(match, stored).sum()):
                rows[table.step] = rows.get(table.step, 0) + count
            if count or has_spare(stored):
                dirty.add(file)
    return StateErasure(folder, files, rows, frozenset(dirty))


def runs_by_file(manifests: Sequence[Manifest]) -> dict[str, dict[RunRef, StoredTable]]:
    files: dict[str, dict[RunRef, StoredTable]] = {}
    for manifest in manifests:
        for name, stored in manifest.state.items():
            step, _, table = name.rpartition("/")
            about = StoredTable(step, table, manifest.ops.get(step, StepFacts()))
            for segment in SlotState.from_json(stored).segments:
                for ref in segment.refs:
                    files.setdefault(ref.file, {}).setdefault(ref, about)
    return files


def blocks(path: Path) -> Iterator[tuple[int, pa.Table]]:
    """All runs in a file, named or not, with their places in it."""
    with sealed.named_failures(path), pa.memory_map(str(path)) as mapped:
        data = mapped.read_buffer()
    at = _ALIGN
    while at < data.size:
        reader = pa.BufferReader(data.slice(at))
        try:
            table = pa.ipc.open_stream(reader).read_all()
        except pa.ArrowInvalid as error:
            raise sealed.corrupt(path, f"the block at {at} cannot be read: {error}") from error
        yield at, table
        at += reader.tell() + -reader.tell() % _ALIGN


# What manifests say


def renamed_state(manifest: Manifest, renamed: Mapping[RunRef, RunRef | None]) -> dict[str, Any]:
    """The state of a manifest, in the files that were written."""
    return {name: _renamed(stored, renamed) for name, stored in manifest.state.items()}


def _renamed(stored: Any, renamed: Mapping[RunRef, RunRef | None]) -> Any:
    state = SlotState.from_json(stored)
    if not any(ref in renamed for s in state.segments for ref in s.refs):
        return stored
    return SlotState(tuple(_segment(s, renamed) for s in state.segments)).to_json()


def _segment(segment: Segment, renamed: Mapping[RunRef, RunRef | None]) -> Segment:
    refs = [renamed.get(ref, ref) for ref in segment.refs]
    return replace(segment, refs=tuple(ref for ref in refs if ref is not None))
