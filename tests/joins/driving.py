"""Two disordered streams drawn at random, and a join over them driven beside its model.

The job is the real thing: plan, state files and commits, crashed and started anew where the
draw says so. After every batch the join must have given what the model says and nothing else,
and a window after the join must find none of it late.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from hypothesis import HealthCheck, Phase
from hypothesis import strategies as st

import headrace as hr
from headrace.testing import Harness

SEQUENCES = int(os.environ.get("HEADRACE_EXAMPLES", "0"))
KEYS = 30  # sequences that share a job
OPTIONS: dict[str, Any] = {
    "deadline": None, "phases": [Phase.explicit, Phase.reuse, Phase.generate], "database": None,
    "print_blob": True, "suppress_health_check": list(HealthCheck),
}  # fmt: skip
ROOM = "/dev/shm" if Path("/dev/shm").is_dir() else None
NEVER, ALWAYS = -(2**62), 2**62
UNIT, DELAY = 1_000, 4_000
SCHEMA = "k string, v bigint, at timestamp"
ARROW = pa.schema([("k", pa.string()), ("v", pa.int64()), ("at", pa.timestamp("us", "UTC"))])


def examples(fewest: int) -> int:
    return max(-(-SEQUENCES // KEYS), fewest)


class Row(NamedTuple):
    key: str | None
    value: int | None
    time: int


class Turn(NamedTuple):
    """What comes in a batch, by input and split, and what happens before it."""

    rows: dict[tuple[str, int], list[Row]]
    event: str  # "", "crash" or "restart"


class Model(Protocol):
    def step(
        self, new: dict[str, list[Row]], before: int, after: int
    ) -> list[tuple[int | None, tuple[Any, ...]]]:
        """The results of a batch without late rows: event time and values."""


@st.composite
def turns(draw: Any, inputs: tuple[str, ...] = ("a", "b"), keys: int = KEYS) -> list[Turn]:
    """Disordered rows of some keys over some batches; a few come far too late."""
    count = draw(st.integers(3, 6))
    row = st.tuples(
        st.integers(0, count - 1), st.integers(0, len(inputs) - 1), st.integers(0, 1),
        st.integers(0, 4) | st.integers(0, 14), st.sampled_from([0, 0, 0, 1, 250]),
    )  # fmt: skip
    drawn = draw(st.lists(st.lists(row, max_size=9), min_size=keys, max_size=keys))
    steps = draw(st.lists(st.integers(0, 9), min_size=count, max_size=count))
    events = draw(st.lists(st.sampled_from(["", "", "crash", "restart"]), min_size=count,
                           max_size=count))  # fmt: skip
    ahead = [draw(st.sampled_from([0, 0, 6, 15])) * UNIT for _ in inputs]
    found, base, value = [], 10 * UNIT, 0
    for turn in range(count):
        base += steps[turn] * UNIT
        rows: dict[tuple[str, int], list[Row]] = {}
        for key, sequence in enumerate(drawn):
            for when, port, split, back, jitter in sequence:
                if when == turn:
                    value += 1
                    time = base + ahead[port] - back * UNIT + jitter
                    rows.setdefault((inputs[port], split), []).append(
                        Row(f"k{key}" if key else None, value, time)
                    )
        found.append(Turn(rows, events[turn]))
    return found


@dataclass
class Watermark:
    """The least of what each split has reached; nothing before all of them have spoken."""

    inputs: tuple[str, ...]
    marks: dict[tuple[str, int], int] = field(default_factory=dict)
    value: int = NEVER

    def after(self, turn: Turn) -> int:
        for split, rows in turn.rows.items():
            newest = max(r.time for r in rows) - DELAY
            self.marks[split] = max(self.marks.get(split, NEVER), newest)
        known = {name for name, _ in self.marks}
        reached = min(self.marks.values()) if known == set(self.inputs) else NEVER
        self.value = max(self.value, reached)
        return self.value


@dataclass
class Driven:
    build: Callable[..., Any]  # from the streams to the joined stream
    model: Any
    turns: list[Turn]
    inputs: tuple[str, ...] = ("a", "b")
    lateness: int = 0
    tasks: int = 2
    timed: bool = True  # results have a time that a window can go by
    has_late: bool = True  # rows can be late for the join

    def run(self) -> None:
        self.due: Counter[int] = Counter()
        mark = Watermark(self.inputs)
        with (
            tempfile.TemporaryDirectory(dir=ROOM) as folder,
            Harness(self._job(), folder=folder, tasks=self.tasks) as harness,
        ):
            for turn in self.turns:
                if turn.event:
                    harness._tasks = harness._tasks % 3 + 1  # others share the keys after a start
                    getattr(harness, turn.event)()
                send(harness, turn.rows)
                before = mark.value
                self._compare(harness, turn, before, mark.after(turn))
            harness.end()
            self._compare(harness, Turn({}, ""), mark.value, ALWAYS)
            self._windows(harness)

    def _job(self) -> hr.Job:
        job = hr.Job("joins")
        streams = [
            job.read(f"log:{n}", schema=SCHEMA, time="at", delay=f"{DELAY}ms", name=n)
            for n in self.inputs
        ]
        joined = self.build(*streams).named("join")
        joined.write("console:", name="out")
        if self.timed:
            joined.window(hr.tumbling("1s")).agg(n=hr.count(), name="after").write(
                "console:", name="windows"
            )
        return job

    def _compare(self, harness: Harness, turn: Turn, before: int, after: int) -> None:
        floor = before if before in (NEVER, ALWAYS) else before - self.lateness
        by_time = getattr(self.model, "late", lambda time, floor: time < floor)
        is_late = getattr(self.model, "late_row", lambda row, floor: by_time(row.time, floor))
        new: dict[str, list[Row]] = {n: [] for n in self.inputs}
        late = []
        for (name, _), rows in turn.rows.items():
            new[name] += [r for r in rows if not is_late(r, floor)]
            late += [r for r in rows if is_late(r, floor)]
        wanted = self.model.step(new, before, after)
        came = [tuple(map(plain, row.values())) for row in harness.output("out")]
        assert Counter(came) == Counter(values for _, values in wanted)
        if self.has_late:
            assert sorted(r["v"] for r in harness.late("join")) == sorted(r.value for r in late)
        self.due.update(time // 1_000 for time, _ in wanted if time is not None)

    def _windows(self, harness: Harness) -> None:
        if self.timed:
            assert harness.late("after") == []
            found = {plain(r["window_start"]) // 1_000: r["n"] for r in harness.output("windows")}
            assert found == dict(self.due)


def send(harness: Harness, rows: dict[tuple[str, int], list[Row]]) -> None:
    """Rows on several inputs in one batch, which no single `send` can do."""
    page = harness._script.turn()
    for (name, split), mine in rows.items():
        columns = [[r.key for r in mine], [r.value for r in mine], [r.time * 1_000 for r in mine]]
        table = pa.table([pa.array(c, f.type) for c, f in zip(columns, ARROW, strict=True)], ARROW)
        page = harness._script.rows(page, name, str(split), table)
    harness._step(page)


def plain(value: Any) -> Any:
    """Times as milliseconds, all else as it is."""
    return round(value.timestamp() * 1_000) if hasattr(value, "timestamp") else value


def sums(key: Any, mine: list[Any], theirs: list[Any]) -> tuple[int, int]:
    assert all(r.k == key for r in (*mine, *theirs))
    assert mine == sorted(mine, key=lambda r: r.at)
    return sum(r.v for r in mine), sum(r.v for r in theirs)


def in_windows(how: str, window: Any, lateness: str) -> Any:
    """How two streams are joined in windows, or grouped together with `sums`."""

    def build(a: Any, b: Any) -> Any:
        if how == "cogroup":
            said = "mine bigint, theirs bigint"
            return a.cogroup(b, sums, on="k", window=window, lateness=lateness, schema=said)
        return a.join(b, on="k", how=how, window=window, lateness=lateness)

    return build
