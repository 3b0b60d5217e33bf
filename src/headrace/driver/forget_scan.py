"""The proof: every file of a job's folder, its topics and its outputs, searched for a value.

Files are read by their formats' own readers, because Arrow and compression hide bytes; what is of
no format of ours is searched as bytes. It shares nothing with what decided what was to go: a value
is found in whatever column or text it is. What is found is said by name.
"""

from __future__ import annotations

import json
import mmap
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.driver.forget_places import TopicPlace, records_of
from headrace.driver.forget_report import ForgetReport, RemainingPlace
from headrace.driver.forget_state import StoredTable, blocks, keyed_by, runs_by_file
from headrace.errors import HeadraceError
from headrace.key_match import KeyMatch
from headrace.plan.nodes import LETTER_SCHEMA
from headrace.sinks.avro_files import all_columns
from headrace.sinks.commits import FOLDER as COMMITS
from headrace.sinks.files import FilesSink
from headrace.spare_bytes import has_spare
from headrace.state import sealed
from headrace.state.loops import FOLDER as LOOPS
from headrace.state.manifest import Manifest, StepFacts
from headrace.state.prune import RUNS
from headrace.state.resends import FOLDER as RESENDS
from headrace.state.resends import Resends
from headrace.task.letters import unpacked

_LOOPS = "rows that go round: let the job run until they have left, and its kept epochs with them"
_STATE = (
    "the step is not keyed by it: run the job until these rows have left its state, or start the "
    "step anew (--drop {step})"
)
_HASHES = "it remembers hashes of keys that it has seen; to forget them, --drop {step}"
_SPARE = "bytes of other rows that were in memory: repeat this"
_RECEIVED = "not surely records of the key, or the input goes on from there: let the job run on"
_OUTPUT = "it is part of another key's row, or of a record whose columns are not known"
_FOREIGN = "the file is not of this job: forget it in the job that wrote it, or remove it"
_PACKED = {".gz": "gzip", ".zst": "zstd"}


@dataclass
class Scan:
    """What was looked at, and what was found."""

    match: KeyMatch
    looked: Counter[str] = field(default_factory=Counter)
    found: dict[tuple[str, str], int] = field(default_factory=dict)

    def note(self, where: str, why: str, count: int) -> None:
        if count:
            self.found[where, why] = self.found.get((where, why), 0) + count

    def table(self, where: str, why: str, rows: pa.Table) -> None:
        for part in _opened(rows):
            for column, count in self.match.mentions(part).items():
                self.note(f"{where}, column {column}", why, count)

    def spare(self, where: str, rows: pa.Table) -> None:
        """Bytes behind the rows, which no reader shows: nobody knows whose they are."""
        self.note(f"{where}, behind its rows", _SPARE, int(has_spare(rows)))

    def fill(self, report: ForgetReport) -> None:
        report.looked = dict(self.looked)
        report.remaining = [RemainingPlace(*about, n) for about, n in sorted(self.found.items())]


def scan(
    folder: Path,
    manifests: Sequence[Manifest],
    outputs: Mapping[str, FilesSink],
    topics: Sequence[TopicPlace],
    received: Sequence[TopicPlace],
    match: KeyMatch,
) -> Scan:
    work = Scan(match)
    _scan_state(work, folder, manifests)
    _scan_manifests(work, manifests)
    for place in (*topics, *received):
        _scan_topic(work, place, place in received)
    targets = dict.fromkeys(sink.target.resolve() for sink in outputs.values())
    for target in targets:
        _scan_output(work, target, [s for s in outputs.values() if s.target.resolve() == target])
    _scan_requests(work, folder)
    passed = [folder / RUNS, folder / "epochs", folder / "savepoints", folder / RESENDS, *targets]
    passed += [place.root / place.topic for place in received]
    _scan_rest(work, folder, [path.resolve() for path in passed])
    return work


def _opened(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows; of dead letters their packed rows as columns, too."""
    if set(LETTER_SCHEMA.names) <= set(rows.column_names):
        for table, _ in unpacked(rows.column("row").drop_null().to_pylist()):
            yield table.rename_columns([f"row.{name}" for name in table.column_names])
        rows = rows.drop_columns(["row"])
    yield rows


def _scan_state(work: Scan, folder: Path, manifests: Sequence[Manifest]) -> None:
    files = runs_by_file(manifests)
    for path in sorted((folder / RUNS).glob("*")):
        work.looked["files of state"] += 1
        by_offset = {ref.offset: about for ref, about in files.get(path.name, {}).items()}
        for offset, rows in blocks(path):
            about = by_offset.get(offset) or StoredTable("of no manifest", "", StepFacts())
            why = _STATE.format(step=about.step)
            work.spare(f"state of step {about.step!r}, {about.table}", rows)
            work.table(f"state of step {about.step!r}, {about.table}", why, about.shown(rows))
    for manifest in manifests:
        for name in manifest.state:
            step, _, table = name.rpartition("/")
            facts = manifest.ops.get(step, StepFacts())
            if table == "filters" and keyed_by(facts, work.match) and manifest.state[name]["runs"]:
                work.found[f"state of step {step!r}, {table}", _HASHES.format(step=step)] = 0


def _scan_manifests(work: Scan, manifests: Sequence[Manifest]) -> None:
    for manifest in manifests:
        work.looked["manifests"] += 1
        said = {
            "examples of dead letters": {s: dict(e) for s, e in manifest.examples.items()},
            "counters": {step: dict(counts) for step, counts in manifest.metrics.items()},
            "splits of inputs": [[s.name, s.at, s.memory] for s in manifest.splits],
        }
        for what, values in said.items():
            count = work.match.in_json(values)
            where = f"manifest of epoch {manifest.epoch}, {what}"
            work.note(where, "it is there until the epoch is no longer kept", count)


def _scan_topic(work: Scan, place: TopicPlace, own: bool) -> None:
    work.looked["topics"] += 1
    why = _RECEIVED if own else _OUTPUT
    for records in records_of(place):
        where = f"input {place.root.name!r}, {place.topic}" if own else f"topic {place.topic!r}"
        work.table(where, why, records)
    if place.spare >= 0 and _may_be_in(place.root / place.topic, work.match):
        where = f"topic {place.topic!r}, behind the records of blocks"  # others may write to it
        work.note(where, _SPARE, place.open().spare_blocks(place.topic))


def _may_be_in(folder: Path, match: KeyMatch) -> bool:
    """Whether its bytes are in a file, in whatever format and place."""
    sought = match.bytes_of_it
    return sought is None or any(_has(path, sought) for path in _files(folder))


def _has(path: Path, sought: bytes) -> bool:
    with suppress(OSError, ValueError), path.open("rb") as file:  # retention; an empty file
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).find(sought) >= 0
    return False


def _scan_output(work: Scan, target: Path, sinks: Sequence[FilesSink]) -> None:
    chains = {chain for sink in sinks for chain in sink.mergings()}
    for path in _files(target):
        work.looked["files of outputs"] += 1
        below = path.relative_to(target).as_posix()
        ours = any(chain in path.name for chain in chains)
        where = f"output {str(target)!r}" + ("" if ours else f", {below}")
        why = _OUTPUT if ours else _FOREIGN
        if path.parent.name == COMMITS:
            count = _in_sealed(work.match, path, folders=True)
            work.note(f"{where}, its records", why, count)
        else:
            _scan_file(work, path, where, why)
    for inner, _, _ in os.walk(target):
        name = os.path.basename(inner)
        if "=" in name and work.match.single is not None:
            where = f"output {str(target)!r}, folder {name!r}"
            work.note(where, _FOREIGN, work.match.in_json(_of_it(work.match, name)))


def _of_it(match: KeyMatch, value: Any) -> Any:
    """A record without the folders of other keys: `who=mary.ann` is not of `ann`."""
    if isinstance(value, dict):
        return {_of_it(match, key): _of_it(match, inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_of_it(match, inner) for inner in value]
    if not isinstance(value, str) or match.single is None:
        return value
    pieces = [piece.partition("=") for piece in value.split("/")]
    return "/".join(
        unquote(text) if equals else name
        for name, equals, text in pieces
        if not equals or name != match.single[0] or unquote(text) == match.single[1]
    )


def _scan_requests(work: Scan, folder: Path) -> None:
    """Requests to replay dead letters, whose rows are packed."""
    resends = Resends(folder)
    for number in resends.numbers():
        work.looked["requests to replay"] += 1
        where, letters = f"request {number} to replay dead letters", resends.read(number)
        work.table(where, _OUTPUT, letters)
        work.spare(where, letters)


def _scan_file(work: Scan, path: Path, where: str, why: str) -> None:
    try:
        for rows in _tables(path):
            work.table(where, why, rows)
            if path.suffix == ".arrow":
                work.spare(where, rows)
    except (HeadraceError, pa.ArrowException, OSError, ValueError) as error:
        work.note(where, f"{path.name} cannot be read: {error}", 1)


def _tables(path: Path) -> Iterator[pa.Table]:
    suffix = path.suffix
    if suffix == ".parquet":
        with pq.ParquetFile(path) as file:
            yield from (pa.Table.from_batches([batch]) for batch in file.iter_batches())
    elif suffix == ".avro":
        yield from all_columns(path)
    elif suffix == ".arrow":
        with pa.OSFile(str(path)) as source:
            yield pa.ipc.open_file(source).read_all()
    else:
        codec = _PACKED.get(suffix)
        with pa.input_stream(str(path), codec) as stream:
            data = stream.read()
        yield pa.table({"text": pa.array(data.splitlines(), pa.large_binary())})


def _scan_rest(work: Scan, folder: Path, passed: Sequence[Path]) -> None:
    """What is of no kind that was looked at: the fence, marks, notes of inputs, and strays."""
    for path in _files(folder):
        if any(path.resolve().is_relative_to(place) for place in passed):
            continue
        below = path.relative_to(folder).as_posix()
        work.looked["other files"] += 1
        if below.startswith(f"{LOOPS}/") and path.suffix == ".arrow":
            _scan_file(work, path, f"loop {path.parent.name!r}", _LOOPS)
        elif path.suffix in (".parquet", ".arrow", ".avro"):
            _scan_file(work, path, below, _FOREIGN)
        else:
            work.note(below, "the job has noted it there", _in_sealed(work.match, path))


def _in_sealed(match: KeyMatch, path: Path, *, folders: bool = False) -> int:
    """How often a file of lines of JSON has it, or any other file as bytes."""
    with sealed.named_failures(path):
        data = path.read_bytes()
    try:
        said = [json.loads(line) for line in data.splitlines() if line]
        return match.in_json(_of_it(match, said) if folders else said)
    except ValueError:
        return match.in_bytes(data)


def _files(folder: Path) -> Iterator[Path]:
    for where, folders, names in os.walk(folder):
        folders.sort()
        yield from (Path(where) / name for name in sorted(names))
