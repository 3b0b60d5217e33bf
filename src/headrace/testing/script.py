"""The script of a test so far, and the fakes at a job's edges that read it.

A script is the clock, and what came on each split of each input. It is one folder, so that
other processes can read it: rows as Arrow files, everything else as one small file that is
replaced whole. A `Page` is what that file holds at one moment; the clock turns to the newest
page, so a batch sees one page only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from headrace.clock import MIN_TIME, Clock, Duration, millis
from headrace.epoch.bundle import Edges, Ids
from headrace.errors import RunError
from headrace.files import replacing
from headrace.plan.program import Program
from headrace.sinks import Sink, open_sink
from headrace.sources import Source, open_source
from headrace.sources.contract import Chunk, Range

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
    """The whole script at one moment; a value."""

    clock: int = 0
    inputs: Mapping[str, Mapping[str, Entries]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()

    def splits(self, name: str) -> list[str]:
        """The splits of an input: those that were named, and at least one."""
        return list(self.inputs.get(name, ())) or ["0"]

    def entries(self, name: str, split: str) -> Entries:
        return self.inputs.get(name, {}).get(split, ())

    def having(self, name: str, split: str, *added: Entry) -> Page:
        """This page with more entries on a split; without any, the split is only added."""
        splits = {**self.inputs.get(name, {})}
        splits[split] = (*splits.get(split, ()), *added)
        return replace(self, inputs={**self.inputs, name: splits})

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
        """Go to the newest page: the one we wrote, if we are the writer."""
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
    fields = {"clock": page.clock, "inputs": page.inputs, "ended": page.ended}
    return json.dumps(fields, separators=(",", ":")).encode()


def _read(content: bytes) -> Page:
    fields = json.loads(content)
    inputs = {
        name: {split: tuple(Entry(*e) for e in entries) for split, entries in splits.items()}
        for name, splits in fields["inputs"].items()
    }
    return Page(fields["clock"], inputs, tuple(fields["ended"]))


# Fakes at a job's edges: inputs and a clock that read a script, outputs that collect.
#
# Between them everything is real: plan, operators, state, commits. The fakes are files in a
# folder, so they are the same for a job in this process and for one on Spark.


CRASHED = "HR-TEST-001"
_BETWEEN = "commit.checked"  # all is written, and the manifest is not


class ScriptClock:
    """The script's clock. A batch begins by reading it: it turns the page for all inputs."""

    def __init__(self, script: Script) -> None:
        self._script, self._shown = script, 0

    def now(self) -> int:
        self._shown = self._script.turn().clock
        return self._shown

    def steady(self) -> int:
        """As it was read last: a test's clock advances because time passes."""
        return self._shown


class FakeSource(Source):
    """An input of which a script says what comes."""

    bounded = True  # the script says when it ends
    raw = False

    def __init__(self, script: Script, name: str, schema: pa.Schema, uri: object = "") -> None:
        self.schema, self._uri = schema, uri if isinstance(uri, str) else ""
        self._script, self._name = script, name

    def identity(self) -> dict[str, str]:
        return {"kind": "script", "place": self._uri, "thing": ""}

    def splits(self) -> list[str]:
        return self._page.splits(self._name)

    def latest(self, split: str) -> int:
        return end_of(self._entries(split))

    def ended(self, split: str, offset: int) -> bool:
        return self._name in self._page.ended and offset >= self.latest(split)

    def watermark(self, split: str, offset: int) -> int:
        times = [e.watermark for e in self._entries(split) if e.end <= offset]
        return max((w for w in times if w is not None), default=MIN_TIME)

    def idle(self, split: str, offset: int) -> bool:
        last = [e for e in self._entries(split) if e.end <= offset][-1:]
        return bool(last) and last[0].idle

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        """Ranges that name the files they are in: a task need not know the script."""
        ranges = []
        for part in super().cut(split, start, end, pieces):
            entries = [e for e in self._entries(split) if e.start < part.end and part.start < e.end]
            files = tuple((e.file, e.start) for e in entries if e.file is not None)
            ranges.append(Range(split, part.start, part.end, files))
        return ranges

    def read(self, range: Range) -> Iterator[Chunk]:
        for file, base in range.parts:
            table = self._script.table(file)
            lo, hi = max(range.start - base, 0), min(range.end - base, table.num_rows)
            yield table.slice(lo, hi - lo), np.arange(base + lo, base + hi, dtype=np.int64)

    @property
    def _page(self) -> Page:
        return self._script.page

    def _entries(self, split: str) -> Entries:
        return self._page.entries(self._name, split)


class CrashPoint:
    """Called at each durable step of a commit; fails the next commit, once it was asked to."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "crash"

    def ask(self) -> None:
        self._flag.parent.mkdir(parents=True, exist_ok=True)
        self._flag.touch()

    def __call__(self, point: str) -> None:
        if point == _BETWEEN and self._flag.exists():
            self._flag.unlink()
            raise RunError(CRASHED, "the test crashed the job", "The harness starts it again.")


def fake_edges(script: Script, schemas: Mapping[str, pa.Schema], reached: CrashPoint) -> Edges:
    """Inputs that read `script`, outputs that collect."""
    return Edges(partial(_inputs, script, schemas), _outputs, reached)


def _inputs(
    script: Script,
    schemas: Mapping[str, pa.Schema],
    program: Program,
    folder: str,
    until: str | None,
    clock: Clock,
    ids: Ids,
) -> dict[str, Source]:
    return {
        r.name: open_source(r.uri, folder=folder, name=r.name)  # the job itself writes it
        if getattr(r.uri, "loops", False)
        else FakeSource(script, r.name, schemas[r.name], r.uri)
        for r in program.sources()
    }


def _outputs(program: Program, folder: str, ids: Ids) -> dict[str, Sink]:
    return {
        w.name: open_sink(_uri(w.uri), w.schema, None, folder, w.name, ids[w.name])
        for w in program.outputs()
    }


def _uri(uri: Any) -> str:
    """Rows that go round go round; all others are collected."""
    return str(uri) if str(uri).startswith("loop:") else "collect:"


# Times and durations as a test writes them.
#
# A time is milliseconds since 1970 (an int), a datetime (without a zone: UTC), or a text such
# as "12s": so long after 1970. A duration is what it is everywhere: "5s", a timedelta, seconds.


Time = int | str | datetime
_1970 = datetime(1970, 1, 1, tzinfo=UTC)


def moment(time: Time) -> int:
    """A time in milliseconds since 1970."""
    if isinstance(time, datetime):
        aware = time if time.tzinfo else time.replace(tzinfo=UTC)
        return (aware - _1970) // timedelta(milliseconds=1)
    if isinstance(time, str):
        return millis(time)
    if isinstance(time, int) and not isinstance(time, bool):
        return time
    raise RunError(
        "HR-TEST-002",
        f"{time!r} is not a time",
        'Give milliseconds since 1970, a datetime, or "12s" for twelve seconds after 1970.',
    )


def later(now: int, by: Duration | datetime) -> int:
    """The clock after `by`: a duration, or the time itself as a datetime."""
    then = moment(by) if isinstance(by, datetime) else now + millis(by)
    return not_back(now, then)


def not_back(now: int, then: int) -> int:
    if then < now:
        raise RunError(
            "HR-TEST-003",
            f"the clock is at {now} ms and cannot go back to {then} ms",
            "Time only goes on: give a later one, or start another harness.",
        )
    return then
