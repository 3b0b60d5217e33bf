"""Streams drawn at random, and a job over one of them driven beside its model.

The job is the real thing: plan, planner, state files and commits, closed and started anew
where the stream says so. After every epoch its output must hold what the model says; where
the job sees nothing to do, the model must have nothing to show. Keys do not know of each
other, so each key of a stream is a sequence of its own.
"""

from __future__ import annotations

import copy
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

import headrace as hr
from headrace.clock import ManualClock
from headrace.testing import Driver
from tests.windows.cases import SCHEMA, build
from tests.windows.model import ALWAYS, NEVER, Model, Row

ROOM = "/dev/shm" if Path("/dev/shm").is_dir() else None
START = 1_000_000_000  # the clock at the beginning
SPLITS = 2


@dataclass(frozen=True)
class Turn:
    """What happens before an epoch: time passes, rows come, perhaps the job starts anew."""

    wait: int
    rows: tuple[Row, ...] = ()
    tasks: int = 0  # 0: the job goes on


@dataclass(frozen=True)
class Stream:
    turns: tuple[Turn, ...]
    delay: int
    idle: int
    tasks: int

    def started(self, tasks: int, again: bool) -> Stream:
        """The same with so many tasks, and started anew before every turn or before none."""
        turns = tuple(replace(t, tasks=tasks if again else 0) for t in self.turns)
        return replace(self, turns=turns, tasks=tasks)

    def without_keys(self) -> Stream:
        turns = (replace(t, rows=tuple(r._replace(key=None) for r in t.rows)) for t in self.turns)
        return replace(self, turns=tuple(turns))


@st.composite
def streams(draw: Any, unit: int, first: int, keys: int) -> Stream:
    """Disordered rows of some keys over some epochs; a few come far too late."""
    count = draw(st.integers(3, 7))
    row = st.tuples(
        st.integers(0, count - 1), st.integers(0, 3) | st.integers(0, 12),
        st.sampled_from([0, 0, 0, 0, -1, 1]), st.none() | st.integers(-4, 9),
        st.integers(0, SPLITS - 1), st.none() | st.integers(-1, 4),
    )  # fmt: skip
    drawn = draw(st.lists(st.lists(row, min_size=1, max_size=7), min_size=keys, max_size=keys))
    waits = draw(st.lists(st.sampled_from([0, 400, 1_000, 2_500, 9_000]), min_size=count + 2,
                          max_size=count + 2))  # fmt: skip
    steps = draw(st.lists(st.integers(0, 5), min_size=count, max_size=count))
    starts = draw(st.lists(st.sampled_from([0, 0, 1, 2, 3]), min_size=count + 2,
                           max_size=count + 2))  # fmt: skip
    at, times = first, []
    for step in steps:
        at += step * unit
        times.append(at)
    offsets = [0] * SPLITS
    turns = []
    for epoch in range(count + 2):  # the last two bring time only
        rows = []
        for key, sequence in enumerate(drawn):
            for turn, back, jitter, value, split, gap in sequence:
                if turn == epoch:
                    time = times[epoch] - back * unit + jitter
                    name = f"k{key}" if key else None
                    gaps = None if gap is None else gap * unit
                    rows.append(Row(name, value, time, split, offsets[split], gaps))
                    offsets[split] += 1
        turns.append(Turn(waits[epoch], tuple(rows), starts[epoch]))
    delay = draw(st.sampled_from([1, unit, 3 * unit]))
    return Stream(tuple(turns), delay, draw(st.sampled_from([2_000, 60_000])), draw(_TASKS))


_TASKS = st.integers(1, 3)


@dataclass
class Watermark:
    """How far the input is: per split the newest time less the delay; silent ones do not count."""

    delay: int
    idle: int
    processing: bool = False  # then it is the clock
    value: int = NEVER
    marks: dict[int, int] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)

    def awake(self, clock: int) -> None:
        """A run begins: silence counts from here."""
        self.seen = dict.fromkeys(self.seen, clock)

    def after(self, rows: list[Row], clock: int) -> int:
        for split in range(SPLITS):
            mine = [r.time - self.delay for r in rows if r.split == split]
            self.marks[split] = max([self.marks.get(split, NEVER), *mine])
            self.seen[split] = clock if mine else self.seen.get(split, clock)
        live = [self.marks[s] for s in self.marks if clock - self.seen[s] < self.idle]
        spoke = [self.marks[s] + clock - self.seen[s] for s in self.marks if self.marks[s] > NEVER]
        reached = min(live) if live else max(spoke, default=NEVER)
        self.value = max(self.value, clock if self.processing else reached)
        return self.value


@dataclass
class Driven:
    """A job and its model, side by side."""

    case: Model
    stream: Stream
    folder: str
    make: Callable[[Any, Model], Any]
    processing: bool = False
    clock: ManualClock = field(default_factory=lambda: ManualClock(START))
    told: Counter[str] = field(default_factory=Counter)

    def run(self) -> None:
        self.log = hr.EmbeddedLog(f"{self.folder}/log")
        self.log.create("x", partitions=SPLITS, schema=SCHEMA)
        self.model = copy.deepcopy(self.case)
        self.watermark = Watermark(self.stream.delay, self.stream.idle, self.processing)
        self.driver = self._start(self.stream.tasks)
        for turn in self.stream.turns:
            self._turn(turn)
        self.driver.close()
        self.driver = self._start(self.stream.tasks, "end")
        before, self.watermark.value = self.watermark.value, ALWAYS
        self.driver.epoch()
        self._compare(*self.model.step([], before, ALWAYS, self.clock.now()))
        assert self.driver.epoch() is None, "the job does not come to rest"
        self._assert_accounts()
        self.driver.close()

    def _start(self, tasks: int, until: str | None = None) -> Driver:
        job = hr.Job("windows")
        rows = job.read(
            "log:x", log=f"{self.folder}/log", name="x", time="at",
            delay=f"{self.stream.delay}ms", idle=f"{self.stream.idle}ms",
        )  # fmt: skip
        result = self.make(rows, self.case)
        result.write("collect:", name="out")
        result.late.write("collect:", name="late")
        return Driver(job, f"{self.folder}/job", clock=self.clock, until=until, tasks=tasks)

    def _turn(self, turn: Turn) -> None:
        if turn.tasks:
            self.driver.close()
            self.driver = self._start(turn.tasks)
        self.clock.advance(turn.wait)
        if turn.tasks:
            self.watermark.awake(self.clock.now())
        for split in range(SPLITS):
            mine = [_record(r) for r in turn.rows if r.split == split]
            if mine:
                self.log.append("x", mine, partition=split)
        rows = list(turn.rows)
        if self.processing:
            rows = [row._replace(time=self.clock.now()) for row in rows]
        for _ in range(5):
            before, worked = self.watermark.value, self.driver.epoch()
            if worked is None:
                break
            after = self.watermark.after(rows, self.clock.now())
            assert self._reached() == after
            self._compare(*self.model.step(rows, before, after, self.clock.now()))
            rows = []
        else:
            raise AssertionError("the job does not come to rest")
        assert not rows
        self._assert_nothing_is_due()

    def _assert_nothing_is_due(self) -> None:
        """The job sees nothing to do: so must the model, if it were asked."""
        if self.watermark.marks:
            before, twin = self.watermark.value, copy.deepcopy(self.watermark)
            after = twin.after([], self.clock.now())
            again = copy.deepcopy(self.model).step([], before, after, self.clock.now())
            assert again == ([], []), again

    def _reached(self) -> int:
        assert self.driver.manifest is not None
        ops = self.driver.manifest.ops.values()
        return int(next(iter(ops)).watermark)

    def _compare(self, shown: list[dict[str, Any]], late: list[Row]) -> None:
        found = self._news("out")
        wanted = [_shown(row, self.case) for row in shown]
        if Counter(map(repr, found)) != Counter(map(repr, wanted)):
            raise Differs(found, wanted, self.driver.manifest)
        came = [r[-1] for r in self._news("late")]
        assert sorted(came) == sorted(row.number for row in late), (came, late)
        self._assert_taken_back_first(found)

    def _assert_taken_back_first(self, found: list[tuple[Any, ...]]) -> None:
        """No result is taken back that was not there."""
        if self.case.mode == "retract":
            for *row, change in found:
                self.told[repr(row)] += 1 if change == "+" else -1
                assert self.told[repr(row)] in (0, 1), row

    def _news(self, output: str) -> list[tuple[Any, ...]]:
        """The rows that the last epoch added to an output."""
        table = self.driver.output(output)
        if table.num_rows and "k" not in table.column_names:  # without keys there is one
            table = table.add_column(0, "k", pa.nulls(table.num_rows))
        elif table.num_rows:  # or it is a column like others, of rows that are folded
            table = table.select(["k", *(n for n in table.column_names if n != "k")])
        known, self.told[output] = self.told[output], table.num_rows
        return _tuples(table.slice(known)) if table.num_rows > known else []

    def _assert_accounts(self) -> None:
        assert self.driver.manifest is not None
        for counts in self.driver.manifest.counts.values():
            fates = ("used", "filtered", "late", "dead")
            assert counts["read"] == sum(counts[f] for f in fates)


class Differs(AssertionError):
    def __init__(self, found: list[Any], wanted: list[Any], manifest: Any) -> None:
        left, right = Counter(map(repr, found)), Counter(map(repr, wanted))
        self.keys = {row[0] for row in (*found, *wanted)
                     if left[repr(row)] != right[repr(row)]}  # fmt: skip
        lines = [f"epoch {manifest.epoch}"]
        lines += [f"  only the job: {row}" for row in (left - right).elements()]
        lines += [f"  only the model: {row}" for row in (right - left).elements()]
        super().__init__("\n".join(lines))


def drive(
    case: Model, stream: Stream, make: Callable[[Any, Model], Any] | None = None, **more: Any
) -> None:
    """Run the stream through the case's job; fails where it does not do as the model does."""
    with tempfile.TemporaryDirectory(dir=ROOM) as folder:
        Driven(case, stream, folder, make or _by_key, **more).run()


def _by_key(rows: Any, case: Model) -> Any:
    return build(rows.key_by("k"), case)


def _record(row: Row) -> dict[str, Any]:
    return {"k": row.key, "v": row.value, "at": row.time, "g": row.gap, "n": row.number}


def _shown(row: dict[str, Any], case: Model) -> tuple[Any, ...]:
    number = ["number"] if "number" in row and not case.once else []
    info = [row[n] for n in (*number, "pane", "timing", "final")]
    change = [row["change"]] if case.mode == "retract" else []
    return (row["key"], row["start"], row["end"], *row["values"], *info, *change)


def _tuples(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table, times as milliseconds."""
    columns = []
    for column in table.columns:
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.int64()).to_pylist()
            columns.append([None if t is None else t // 1_000 for t in micros])
        else:
            columns.append(column.to_pylist())
    return list(zip(*columns, strict=True))
