"""Reading every kind of output from outside: with pyarrow, sqlite3, deltalake and plain bytes.

Nothing of Headrace is imported here, nor in `verifier.py`: what these readers know of its files is
what their formats say. Each reader is asked again and again while a job runs and is killed. It
returns what can be seen now, as tuples of the columns that it was made with, of which the first is
the part. A reader that meets a change in between (a file that has been merged away) looks again.
"""

from __future__ import annotations

import base64
import json
import sqlite3
import struct
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Row = tuple[Any, ...]
Rows = Counter[Row]
LOOKS = 50


class Reader:
    """What an output shows: `grows` says whether a row that was seen must stay."""

    grows = True

    def __init__(self, place: Path, columns: str) -> None:
        self.place, self.columns = place, columns.split()
        self._seen: Rows = Rows()
        self._as_of: Any = None

    def rows(self) -> Rows:
        """What can be seen now; nothing while the output is not there yet. The same object as
        before if nothing has been written."""
        before = self._version()
        if before is None or before != self._as_of:
            self._seen, self._as_of = again(self._look), before
        return self._seen

    def forget(self) -> None:
        """Look anew, whether something seems to have been written or not."""
        self._as_of = None

    def _version(self) -> Any:
        """What changes with what can be seen; None while it is not there."""
        raise NotImplementedError

    def _look(self) -> Rows:
        raise NotImplementedError

    def _of(self, table: pa.Table) -> Rows:
        columns = [table[name].to_pylist() for name in self.columns]
        return Counter(zip(*columns, strict=True))


def _changed(path: Path) -> Any:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def again(look: Callable[[], Rows]) -> Rows:
    """The result of a look during which no file went away."""
    for _ in range(LOOKS):
        try:
            return look()
        except FileNotFoundError as gone:
            error = gone
    raise error


class Files(Reader):
    """A folder of files: those that the newest snapshot and the records after it name."""

    def __init__(self, place: Path, columns: str) -> None:
        super().__init__(place, columns)
        self._files, self._records = dict[str, Rows](), dict[str, list[str]]()

    def _version(self) -> Any:
        return _changed(self.place / "_commits")

    def _look(self) -> Rows:
        named = list(self._named())
        self._files = {p: self._files.get(p) or self._read(p) for p in named}
        found = Rows()
        for rows in self._files.values():
            found.update(rows)
        return found

    def _named(self) -> Iterator[str]:
        """The visible files, by the rules of the format: two equal lists, so none was missed."""
        folder, last = self.place / "_commits", None
        while True:
            names = sorted(p.name for p in folder.glob("*.json")) if folder.is_dir() else []
            if names == last:
                break
            last = names
        records = [_record_name(n) for n in names if n.split(".")[0].isdecimal()]
        newest = max((at for *at, _ in records if at[1] >= 0), default=None)
        chosen = sorted(r for r in records if newest is None or list(r[:2]) >= newest)
        known = self._records
        self._records = {n: known.get(n) or _named_by(folder / n) for *_, n in chosen}
        yield from dict.fromkeys(file for files in self._records.values() for file in files)

    def _read(self, name: str) -> Rows:
        path = self.place / name
        if not path.exists():  # a merged file that is not in view yet
            path = next((self.place / "_staging").rglob(path.name), path)
        if path.suffix == ".parquet":
            table = pq.ParquetFile(path).read()
            for folder in Path(name).parts[:-1]:
                column, _, value = folder.partition("=")
                table = table.append_column(column, [[value] * table.num_rows])
        elif path.suffix == ".arrow":
            table = pa.ipc.open_file(pa.py_buffer(path.read_bytes())).read_all()
        else:
            table = pa.Table.from_pylist([json.loads(t) for t in path.read_text().splitlines()])
        return self._of(table)


def _named_by(record: Path) -> list[str]:
    """The files that a record names: two lines, of which the second is its JSON."""
    body = json.loads(record.read_text().split("\n", 1)[1])
    folders = [(part.get("folder") or "", part["file"]) for part in body["parts"]]
    return [f"{folder}/{file}" if folder else file for folder, file in folders]


def _record_name(name: str) -> tuple[int, int, str]:
    """EPOCH.CHAIN.json is a record, EPOCH.CHAIN.all.REVISION.json a snapshot that replaces what
    was before."""
    parts = name.split(".")
    return int(parts[0]), int(parts[3]) if len(parts) == 5 else -1, name


class Table(Reader):
    """A table of SQLite."""

    def __init__(self, place: Path, name: str, columns: str) -> None:
        super().__init__(place, columns)
        self._name = name

    def _version(self) -> Any:
        journal = self.place.with_name(f"{self.place.name}-journal")
        return None if journal.exists() else _changed(self.place)

    def _look(self) -> Rows:
        if not self.place.exists():
            return Rows()
        with closing(sqlite3.connect(str(self.place), timeout=60)) as db:
            if not db.execute(
                "SELECT 1 FROM sqlite_master WHERE name = ?", (self._name,)
            ).fetchone():
                return Rows()
            return Rows(db.execute(f"SELECT {', '.join(self.columns)} FROM {self._name}"))


class Delta(Reader):
    """The newest version of a Delta table."""

    def __init__(self, place: Path, columns: str, *, grows: bool = True) -> None:
        super().__init__(place, columns)
        self.grows = grows
        self._table: Any = None

    def _version(self) -> Any:
        return _changed(self.place / "_delta_log")

    def _look(self) -> Rows:
        from deltalake import DeltaTable

        if self._table is None:
            if not DeltaTable.is_deltatable(str(self.place)):
                return Rows()
            self._table = DeltaTable(str(self.place))
        self._table.update_incremental()
        return self._of(self._table.to_pyarrow_table(columns=self.columns))


_HEAD = struct.Struct("<4sIIIQ16sI4xqqqqqqqq")  # magic, checksum, partitions, topic, version, ...
_BLOCK = struct.Struct("<4sHHIIIIqqqqII")
_PREFIX = struct.Struct("<4sIIQ")


class Topic(Reader):
    """A topic: the blocks of its segments, up to where its head says that it is published."""

    def __init__(self, place: Path, columns: str) -> None:
        super().__init__(place, columns)
        self._blocks = dict[tuple[int, int], Rows]()  # by segment and position: they never change

    def _version(self) -> Any:
        head = self.place / "head"
        return (head.read_bytes(), len(list(self.place.iterdir()))) if head.exists() else None

    def _look(self) -> Rows:
        settings = self.place / "topic.json"
        if not settings.exists():
            return Rows()
        packed = json.loads(settings.read_bytes())["schema"]
        schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(packed)))
        newest, limit = self._published()
        found = Rows()
        for path in sorted(self.place.glob("[0-9]*.log")):
            base = int(path.stem)
            if base <= newest:
                data = path.read_bytes()
                for rows in self._read(base, data[:limit] if base == newest else data, schema):
                    found.update(rows)
        return found

    def _published(self) -> tuple[int, int]:
        """The newest segment, and how many of its bytes are published."""
        for _ in range(LOOKS):
            data = (self.place / "head").read_bytes()
            partitions = _HEAD.unpack_from(data)[2]
            length = _HEAD.size + 32 * partitions
            size = -(-length // 4096) * 4096
            slots = []
            for raw in (data[:length], data[size : size + length]):
                if len(raw) == length and zlib.crc32(raw[8:]) == _HEAD.unpack_from(raw)[1]:
                    slots.append(_HEAD.unpack_from(raw))
            if slots:
                newest = max(slots, key=lambda slot: slot[4])
                return newest[9], newest[12]
        raise AssertionError(f"no slot of {self.place / 'head'} is sound")

    def _read(self, base: int, data: bytes, schema: pa.Schema) -> Iterator[Rows]:
        start = _PREFIX.size + _PREFIX.unpack_from(data)[3]
        at = -(-start // 64) * 64
        while at < len(data):
            if (base, at) not in self._blocks:
                self._blocks[base, at] = self._block(data, at, schema)
            yield self._blocks[base, at]
            at += 64 + _BLOCK.unpack_from(data, at)[7]

    def _block(self, data: bytes, at: int, schema: pa.Schema) -> Rows:
        magic, _, _, notes, crc, rows, _, length, *_ = _BLOCK.unpack_from(data, at)
        body = data[at + 64 : at + 64 + length]
        assert magic == b"HRB2" and zlib.crc32(body) == crc, f"a block at {at} is not sound"
        message = pa.py_buffer(body[notes + -notes % 64 :])
        table = pa.Table.from_batches([pa.ipc.read_record_batch(message, schema)])
        assert table.num_rows == rows
        return self._of(table)


def readers(program: str, work: Path) -> dict[str, Reader]:
    """The outputs of a program, by name."""
    out, match = work / "out", "part k odd even"
    of: dict[str, Sequence[tuple[str, Reader]]] = {
        "windows": [
            ("windows", Files(out / "windows", "part k start n total")),
            ("late", Files(out / "late", "part id")),
        ],
        "joined": [("pairs", Table(out / "pairs.db", "pairs", "part id v paid"))],
        "timers": [("silences", Topic(out / "log" / "silences", "part k n since"))],
        "latest": [
            ("totals", Delta(out / "totals", "part k n total", grows=False)),
            ("best", Delta(out / "best", "part k rank v", grows=False)),
        ],
        "many": [
            ("by_key", Files(out / "by_key", match)),
            ("lines", Files(out / "lines", match)),
            ("matches_log", Topic(out / "log" / "matches", match)),
            ("table", Table(out / "matches.db", "matches", match)),
            ("delta", Delta(out / "delta", match)),
            ("collected", Files(work / "job" / "collect" / "collected", match)),
        ],
    }
    return dict(of[program])


def dead(work: Path) -> Rows:
    """The dead letters, by the bytes of their records."""
    return Files(work / "job" / "dead", "record").rows()
