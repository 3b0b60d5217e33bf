"""Idempotency keys of an "http:" input: which POSTs were stored, remembered for a while.

The keys are in a topic beside the lines. A key is appended *before* the lines of its POST, with the
place that these will have: so after a crash it counts if and only if the topic of lines reaches
there. What does not count is marked so at the next start, before anything else takes its place.
What the log refuses is an InputError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.clock import SystemClock
from headrace.log import EmbeddedLog
from headrace.sources.received import LineWriter, as_input
from headrace.state.faults import point

_CLOCK = SystemClock()
TOPIC = "keys"  # at rest, as the columns
SEGMENT = 4 << 20
_WHAT = "the topic of idempotency keys"
_SCHEMA = pa.schema(
    [
        ("key", pa.string()),  # null: all before it that reach beyond `end` do not count
        ("end", pa.int64()),  # of its lines, in their topic
        ("rows", pa.int64()),
        ("digest", pa.uint64()),
        ("time", pa.int64()),
    ]
)
_FORGET_EVERY = 1_000  # appends of keys, after which old ones are looked for


@dataclass(frozen=True, slots=True)
class StoredPost:
    rows: int
    digest: int
    time: int


class RememberedKeys:
    def __init__(
        self,
        home: Path,
        writer: LineWriter,
        remember: int,
        now: Callable[[], int] = _CLOCK.now,
    ) -> None:
        self._log, self._writer, self._remember, self._now = (
            EmbeddedLog(home),
            writer,
            remember,
            now,
        )
        self._folder = home / TOPIC
        self._known: dict[str, StoredPost] = {}  # in order of time
        self._appends = 0
        with as_input(self._folder, _WHAT):
            self._log.create(TOPIC, schema=_SCHEMA, segment_bytes=SEGMENT, exist_ok=True)
            self._recover()

    def get(self, key: str | None) -> StoredPost | None:
        """The POST that was stored under this key, if that is not too long ago."""
        found = None if key is None else self._known.get(key)
        return found if found is not None and found.time > self._now() - self._remember else None

    def add(self, posts: Sequence[tuple[str | None, int, int]]) -> None:
        """Keys with rows and digests of POSTs that are stored next, one after the other."""
        end, now, records = self._writer.end, self._now(), list[dict[str, object]]()
        for key, rows, digest in posts:
            end += rows
            if key is not None:
                records.append(
                    {"key": key, "end": end, "rows": rows, "digest": digest, "time": now}
                )
        if not records:
            return
        with as_input(self._folder, _WHAT):
            self._log.append(TOPIC, pa.Table.from_pylist(records, _SCHEMA), partition=0)
        point("http.keys.durable")
        for r in records:
            self._known.pop(str(r["key"]), None)
            self._known[str(r["key"])] = StoredPost(int(r["rows"]), int(r["digest"]), now)  # type: ignore[call-overload]
        self._forget()

    def _recover(self) -> None:
        info = self._log.describe(TOPIC)
        counted: dict[str, tuple[int, StoredPost]] = {}
        for _, table in self._log.read(TOPIC, 0, info.earliest[0], info.latest[0]):
            for r in table.to_pylist():
                if r["key"] is None:
                    counted = {k: v for k, v in counted.items() if v[0] <= r["end"]}
                else:
                    counted.pop(r["key"], None)
                    post = StoredPost(r["rows"], r["digest"], r["time"])
                    counted[r["key"]] = (r["end"], post)
        void = [key for key, (end, _) in counted.items() if end > self._writer.end]
        if void:
            end, now = self._writer.end, self._now()
            mark = {"key": None, "end": end, "rows": 0, "digest": 0, "time": now}
            self._log.append(TOPIC, pa.Table.from_pylist([mark], _SCHEMA), partition=0)
        self._known = {k: post for k, (_, post) in counted.items() if k not in void}

    def _forget(self) -> None:
        """Let go of what is too long ago: in memory at once, of the topic whole segments."""
        old = self._now() - self._remember
        while self._known:
            key = next(iter(self._known))
            if self._known[key].time > old:
                break
            del self._known[key]
        self._appends += 1
        if self._appends % _FORGET_EVERY == 0:
            with as_input(self._folder, _WHAT):
                info = self._log.describe(TOPIC)
                first = self._first_after(old, info.earliest[0], info.latest[0])
                self._log.forget(TOPIC, {0: first})

    def _first_after(self, old: int, low: int, high: int) -> int:
        """The first record that is not too old; they are in order of time."""
        while low < high:
            middle = (low + high) // 2
            ((_, table),) = self._log.read(TOPIC, 0, middle, middle + 1)
            if table["time"][0].as_py() <= old:
                low = middle + 1
            else:
                high = middle
        return low
