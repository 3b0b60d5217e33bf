"""What a test has said so far: the clock, and what came on each split of each input.

It lies in one folder, so that other processes can read it: rows as Arrow files, everything
else as one small file that is replaced whole. A `Page` is what that file says at one moment;
who turns to the newest page is the clock (`edges.py`), so a batch sees one page only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.files import replacing

_FILE = "script.json"


class Entry(NamedTuple):
    """Offsets [start, end) of a split: rows in a file, or a mark, which is one long."""

    start: int
    end: int
    file: str | None = None
    watermark: int | None = None
    idle: bool = False


Entries = tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """All that has been said; a value."""

    clock: int = 0
    inputs: Mapping[str, Mapping[str, Entries]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()

    def splits(self, name: str) -> list[str]:
        """The splits of an input: those that were spoken of, and one at least."""
        return list(self.inputs.get(name, ())) or ["0"]

    def entries(self, name: str, split: str) -> Entries:
        return self.inputs.get(name, {}).get(split, ())

    def having(self, name: str, split: str, *added: Entry) -> Page:
        """This page with more on a split; without any, the split is only made known."""
        known = {**self.inputs.get(name, {})}
        known[split] = (*known.get(split, ()), *added)
        return replace(self, inputs={**self.inputs, name: known})

    def marked(self, name: str, split: str, **mark: Any) -> Page:
        """This page with a mark on a split: a watermark, or that it is idle."""
        at = end_of(self.entries(name, split))
        return self.having(name, split, Entry(at, at + 1, **mark))

    def renamed(self, names: Mapping[str, str]) -> Page:
        """The same for inputs that have other names now: {old: new}."""
        inputs = {names.get(n, n): splits for n, splits in self.inputs.items()}
        return replace(self, inputs=inputs, ended=tuple(names.get(n, n) for n in self.ended))


def end_of(entries: Entries) -> int:
    return entries[-1].end if entries else 0


class Script:
    """The pages of one test; small and picklable."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._page: Page | None = None
        self._writing = False

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "_page": None, "_writing": False}

    @property
    def page(self) -> Page:
        """The page we are at."""
        return self._page if self._page is not None else self.turn()

    def turn(self) -> Page:
        """Go to the newest page: the one we wrote, if it is us who write."""
        if self._page is None or not self._writing:
            path = self.folder / _FILE
            self._page = _read(path.read_bytes()) if path.exists() else Page()
        return self._page

    def put(self, page: Page) -> None:
        """Make `page` the newest; a test has one writer."""
        _replace(self.folder / _FILE, _written(page))
        self._page, self._writing = page, True

    def rows(self, page: Page, name: str, split: str, table: pa.Table) -> Page:
        """`page` with rows at the end of a split; they are in a file when this returns."""
        if not table.num_rows:
            return page.having(name, split)
        file = f"{uuid.uuid4().hex}.arrow"
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        _replace(self.folder / file, sink.getvalue())
        at = end_of(page.entries(name, split))
        return page.having(name, split, Entry(at, at + table.num_rows, file=file))

    def table(self, file: str) -> pa.Table:
        return pa.ipc.open_file(pa.memory_map(str(self.folder / file))).read_all()


def _replace(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as fresh:
        fresh.write_bytes(content)


def _written(page: Page) -> bytes:
    said = {"clock": page.clock, "inputs": page.inputs, "ended": page.ended}
    return json.dumps(said, separators=(",", ":")).encode()


def _read(content: bytes) -> Page:
    said = json.loads(content)
    inputs = {
        name: {split: tuple(Entry(*e) for e in entries) for split, entries in splits.items()}
        for name, splits in said["inputs"].items()
    }
    return Page(said["clock"], inputs, tuple(said["ended"]))
