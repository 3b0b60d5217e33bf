"""Fakes at a job's edges: inputs and a clock that read a script, outputs that collect.

Between them everything is real: plan, operators, state, commits. The fakes are files in a
folder, so they are the same for a job in this process and for one on Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.clock import MIN_TIME, Clock
from headrace.epoch.bundle import Edges, Ids
from headrace.errors import RunError
from headrace.plan.program import Program
from headrace.sinks import Sink, open_sink
from headrace.sources import Source
from headrace.sources.contract import Chunk, Range
from headrace.testing.script import Entries, Page, Script, end_of

CRASHED = "HR-TEST-001"
_BETWEEN = "commit.checked"  # all is written, and the manifest is not


class ScriptClock:
    """The script's clock. A batch begins by reading it: it turns the page for all inputs."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def now(self) -> int:
        return self._script.turn().clock


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
        said = [e.watermark for e in self._entries(split) if e.end <= offset]
        return max((w for w in said if w is not None), default=MIN_TIME)

    def idle(self, split: str, offset: int) -> bool:
        last = [e for e in self._entries(split) if e.end <= offset][-1:]
        return bool(last) and last[0].idle

    def cut(self, split: str, start: int, end: int, pieces: int) -> list[Range]:
        """Ranges that name the files they are in: a task need not know the script."""
        found = []
        for part in super().cut(split, start, end, pieces):
            held = [e for e in self._entries(split) if e.start < part.end and part.start < e.end]
            files = tuple((e.file, e.start) for e in held if e.file is not None)
            found.append(Range(split, part.start, part.end, files))
        return found

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


class Crash:
    """Told of a commit's durable steps, it fails the next commit, once it was asked to."""

    def __init__(self, folder: Path) -> None:
        self._flag = folder / "crash"

    def ask(self) -> None:
        self._flag.parent.mkdir(parents=True, exist_ok=True)
        self._flag.touch()

    def __call__(self, point: str) -> None:
        if point == _BETWEEN and self._flag.exists():
            self._flag.unlink()
            raise RunError(CRASHED, "the test crashed the job", "The harness starts it again.")


def fake_edges(script: Script, schemas: Mapping[str, pa.Schema], on_step: Crash) -> Edges:
    """Inputs that read `script`, outputs that collect."""
    return Edges(partial(_inputs, script, schemas), _outputs, on_step)


def _inputs(
    script: Script,
    schemas: Mapping[str, pa.Schema],
    program: Program,
    folder: str,
    until: str | None,
    clock: Clock,
    ids: Ids,
) -> dict[str, Source]:
    return {r.name: FakeSource(script, r.name, schemas[r.name], r.uri) for r in program.sources()}


def _outputs(program: Program, folder: str, ids: Ids) -> dict[str, Sink]:
    nothing: dict[str, Any] = {}
    return {
        w.name: open_sink("collect:", w.schema, nothing, folder, w.name, ids[w.name])
        for w in program.outputs()
    }
