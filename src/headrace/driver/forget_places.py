"""Where a job has rows besides its state: outputs of ours, topics, and places of others.

All of it is found by the manifests, so no program is needed: each says what its inputs and outputs
are and where. What is of a key is decided by columns; of records that are bytes, by the fields of
their JSON, and by the topic's key where they are no JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask
from headrace.driver.forget_report import OtherPlace
from headrace.epoch.bundle import DEAD, open_dead
from headrace.errors import LogError
from headrace.key_match import KeyMatch
from headrace.log import EmbeddedLog
from headrace.plan.nodes import DEAD_SCHEMA
from headrace.sinks import reopen_sink
from headrace.sinks.files import FilesSink
from headrace.state.manifest import Manifest

Hits = Callable[[pa.Table], Mask]

_FILES = ("files", "collect")
_OWN = ("log", "loop", *_FILES)
# topics in a job's folder whose records may go, and how many of the last ones may not: where an
# input goes on from is there
RECEIVED = {"lines": 0, "rows": 1_001}
_NOWHERE = ("rows", "generate", "memory")  # inputs of the program itself


@dataclass(frozen=True, slots=True)
class TopicPlace:
    """A topic that a job reads or writes, or one in its folder."""

    root: Path
    topic: str
    column: str | None = None  # whose value is the key of its records, if that is known
    spare: int = 0

    def open(self) -> EmbeddedLog:
        return EmbeddedLog(self.root)


def file_outputs(folder: Path, manifests: Sequence[Manifest]) -> dict[str, FilesSink]:
    """The outputs of files, those of earlier programs too; by their ids."""
    sinks: dict[str, FilesSink] = {DEAD: open_dead(str(folder))}  # type: ignore[dict-item]
    for manifest in manifests:
        for name, facts in manifest.writes.items():
            if facts.about.get("kind") in _FILES and facts.id not in sinks:
                sink = reopen_sink(dict(facts.about), str(folder), name, facts.id)
                assert isinstance(sink, FilesSink)
                sinks[facts.id] = sink
    return {id: sink for id, sink in sinks.items() if sink.target.is_dir()}


def topics_of(manifests: Sequence[Manifest]) -> list[TopicPlace]:
    """The embedded topics that a job reads or writes, as far as they are there."""
    found: dict[Path, TopicPlace] = {}
    for what, _, about in _abouts(manifests):
        path = Path(str(about.get("place")))
        if about.get("kind") == "log" and (what == "output" or path not in found):
            found[path] = TopicPlace(path.parent, path.name, about.get("key"))
    return [place for path, place in found.items() if (path / "topic.json").exists()]


def received_topics(folder: Path) -> list[TopicPlace]:
    """Those in which the job has stored what its inputs have received."""
    paths = sorted(path.parent for path in (folder / "inputs").glob("*/*/topic.json"))
    return [TopicPlace(p.parent, p.name, spare=RECEIVED.get(p.name, -1)) for p in paths]


def hits_of(match: KeyMatch, column: str | None = None) -> Hits:
    """Which rows or records of a place are of the key."""

    def hits(table: pa.Table) -> Mask:
        names = set(table.column_names)
        if set(DEAD_SCHEMA.names) <= names:
            return _of_letters(match, table) | match.rows(table)
        if _are_records(table):
            return _of_records(match, table, column)
        return match.rows(table)

    return hits


def _are_records(table: pa.Table) -> bool:
    """Whether the rows are records as a topic without a schema has them, or lines."""
    names = set(table.column_names)
    said = "line" if names == {"line"} else "value" if names <= {"key", "value"} else None
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_string)
    return said in names and any(is_of(table.schema.field(said).type) for is_of in kinds)


def _of_records(match: KeyMatch, table: pa.Table, column: str | None) -> Mask:
    values = table.column("line" if "line" in table.column_names else "value")
    found = np.zeros(table.num_rows, np.bool_)
    by_key = np.zeros(table.num_rows, np.bool_)
    if match.single is not None and "key" in table.column_names:
        name, text = match.single
        if column in (None, name):
            same = pc.equal(table.column("key"), pa.scalar(text.encode(), pa.binary()))
            by_key = same.fill_null(False).to_numpy()
    for row, told in enumerate(match.records(values.to_pylist())):
        found[row] = by_key[row] if told is None else told
    return found


def _of_letters(match: KeyMatch, table: pa.Table) -> Mask:
    """A letter is debris: it goes as well if its texts name the value."""
    found = np.zeros(table.num_rows, np.bool_)
    rows = table.select(["record", "error", "traceback", "place"]).to_pylist()
    for number, told in enumerate(match.records([row["record"] for row in rows])):
        found[number] = bool(told)
        if told is None and match.single is not None:
            texts = (text for text in rows[number].values() if text is not None)
            found[number] = any(match.in_text(text) for text in texts)
    return found


# Places of others


def other_places(manifests: Sequence[Manifest], match: KeyMatch) -> list[OtherPlace]:
    """What is not the job's, and what its user has to do there."""
    found: dict[tuple[str, str], OtherPlace] = {}
    for what, name, about in _abouts(manifests):
        kind, place = str(about.get("kind")), str(about.get("place"))
        if kind in _OWN and not (what == "input" and kind == "files"):
            continue
        if what == "input" and kind in _NOWHERE:
            continue
        statement = _statement(what, kind, about, match)
        found.setdefault((what, place), OtherPlace(f"{what} {name}", f"{kind} {place}", statement))
    return list(found.values())


def _abouts(manifests: Sequence[Manifest]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for manifest in manifests:
        for name, reads in manifest.reads.items():
            yield "input", name, reads.about
        for name, writes in manifest.writes.items():
            yield "output", name, writes.about


def _statement(what: str, kind: str, about: Mapping[str, Any], match: KeyMatch) -> str:
    where = " AND ".join(
        f"{name} = '{text.replace(chr(39), chr(39) * 2)}'" for name, text in match.columns.items()
    )
    options = about.get("options") or {}
    table = options.get("table") or about.get("place")
    if kind in ("sql", "table"):
        if what == "input":
            return f"DELETE the rows WHERE {where} from the tables that it reads"
        return f"DELETE FROM {table} WHERE {where}"
    if kind == "delta":
        return f"DELETE FROM delta.`{about.get('place')}` WHERE {where}; then VACUUM it"
    if kind == "iceberg":
        return f"DELETE FROM {table} WHERE {where}; then expire its snapshots"
    if kind == "kafka":
        return (
            f"of a compacted topic: send a record with the key of {match} and no value; of others, "
            "wait for their retention, or kafka-delete-records up to an offset"
        )
    if kind == "files":
        return f"remove the records of {match} from these files, which are yours"
    if kind == "console":
        return "it was printed: clear what has recorded the terminal"
    way = "sent to" if what == "output" else "received from"
    return f"what was {way} it is there: ask for {match} to be erased"


def look_at_topic(place: TopicPlace, hits: Hits) -> int:
    """How many records would go."""
    if place.spare < 0:
        return 0
    return place.open().erase(place.topic, hits, spare=place.spare, dry_run=True)


def records_of(place: TopicPlace) -> Iterator[pa.Table]:
    """All records of a topic that are left."""
    log = place.open()
    for partition, start in log.earliest(place.topic).items():
        try:
            tables = log.read(place.topic, partition, start, offsets=True)
            yield from (table.drop_columns(["__offset"]) for _, table in tables)
        except LogError as error:
            if error.code != "HR-LOG-007":  # retention was faster
                raise
