"""The driver's side of the source: what the next epoch reads, and what its tasks do.

An offset (`Offset`) is the epoch's number, its clock, and how far every split is read. All
that could differ between two runs of an epoch (the clock, idleness, ends, how much is read)
is decided here, once, and recorded in the offset. How far the job is comes from the last
manifest. Nothing is written here but the request to stop when a run until "now" is done.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headrace.clock import MAX_TIME, Clock
from headrace.driver.admission import Admission
from headrace.driver.shedding import Shedder
from headrace.driver.split_state import after_epoch, alignment_bounds, liveness, too_far_ahead
from headrace.epoch.bundle import Bundle
from headrace.epoch.values import (
    Epoch,
    Offset,
    Piece,
    SourceTask,
    held_back,
    hold_of,
    reached_by,
    upstream,
)
from headrace.ops.watermarks import CustomWatermark
from headrace.plan.nodes import Read, Stateful
from headrace.sources import Range
from headrace.state.epochs import EpochLog
from headrace.state.manifest import ENDED, IDLE, LIVE, Manifest, Split
from headrace.state.resends import Resends
from headrace.state.savepoints import Pins, held_offsets

_ROWS_PER_TASK = 20_000  # fewer are not worth a second task
_LEAP = 1_000  # ms by which the machine's clock may get ahead of what has passed


@dataclass(frozen=True, slots=True)
class Pace:
    """How a run reads: how many tasks, towards which batch time, and whether it ends."""

    tasks: int
    slots: int
    until: str | None = None  # "end", "now", or for ever
    target_ms: int = 1_000
    max_batch: int | None = None
    first_batch: int | None = None  # rows to begin with, if not as many as usual


class Planner:
    def __init__(
        self,
        bundle: Bundle,
        log: EpochLog,
        clock: Clock,
        pace: Pace,
    ) -> None:
        program = bundle.program
        self._program, self._sources, self._log = program, bundle.sources, log
        self._clock, self._pace = clock, pace
        self._reads, self._pins = bundle.reads, Pins(log.folder)
        self._resends = Resends(log.folder)
        self._admission = Admission(pace.target_ms, pace.max_batch, pace.first_batch)
        self._aligned = alignment_bounds(program)
        self._upstream = {n.name: upstream(program, n.name) for n in program.stateful()}
        self._holds = {n.name: hold_of(program, n.name) for n in program.stateful()}
        self._ending, self._only_now = pace.until == "end", pace.until == "now"
        self._targets: dict[tuple[str, str], Any] = {}
        self._first: int | None = None  # the clock when the run first looked, or leapt
        self._looked: tuple[int, int] | None = None  # the clock at the last look, and a steady one
        self._last_read = Manifest()  # the last that was read
        self._planned: tuple[int, list[SourceTask]] = (-1, [])
        self._planned_at: int | None = None
        self._waiting = 0  # rows that were there at the last look
        self._shedder = Shedder(program, bundle.sources)
        self._more = False  # whether there were more rows than the last epoch was to read
        self._safe = 0  # the last epoch that the sources know to be committed
        self._all_read = False  # every input was at its end before, and nothing goes round

    # how far the job is

    def start(self) -> Offset:
        """The offset of the last manifest; epoch 0 of a new job."""
        latest = self._log.latest()
        if latest is None:
            return Offset()
        self._last_read = latest
        names = {r.name for r in self._program.sources()}
        splits = tuple(s for s in latest.splits if s.input in names)
        return Offset(latest.epoch, latest.clock, splits)

    def _manifest(self, epoch: int) -> Manifest:
        """The manifest of an epoch; that of a job without one for epoch 0."""
        if epoch and epoch != self._last_read.epoch:
            self._last_read = self._log.read(epoch)
        return self._last_read if epoch else Manifest()

    # the next epoch

    def advance(self, start: Offset) -> Offset:
        """The next epoch's offset; `start` itself when there is nothing to do."""
        if self._safe < start.epoch <= self._log.newest():
            self.committed(start)  # Spark says so only when there is a next batch
        if stop_requested(self._log.folder):
            return start
        if not self._ending and drain_requested(self._log.folder):
            self._ending, self._only_now = True, False
            self._targets.clear()  # what is there now, not when the run began
            for source in self._sources.values():
                source.gather()
        before = self._manifest(start.epoch)
        now = max(self._clock.now(), start.clock)
        steady = self._clock.steady()
        self._notice_leap(now, steady)
        self._learn(steady)
        after = self._move(before, now)
        resent = self._resends.next(before)
        if resent is None and not self._worthwhile(before, after, now):
            # If another driver has gone on meanwhile, the folder is that driver's.
            undisputed = self._log.newest() == start.epoch
            if self._only_now and undisputed and self._exhausted(after):
                request_stop(self._log.folder)
            return start
        begun = {(s.input, s.name): s.at for s in before.splits}
        rows = sum(self._rows(s, begun) for s in after)
        lag = max(0, self._waiting - rows)
        shed = self._shedder.dropped
        self._admission.took(max(0, rows - shed), shed=shed > 0)
        self._more = lag > 0
        self._planned_at = steady
        return Offset(start.epoch + 1, now, tuple(after), lag, resent)

    def _learn(self, steady: int) -> None:
        if self._planned_at is not None:
            ms = steady - self._planned_at
            fixed = self._pace.max_batch is not None
            full = self._more and (fixed or 2 * ms >= self._pace.target_ms)
            self._shedder.speed.lasted(self._admission.admitted, ms, full=full)
            self._admission.lasted(ms)
            self._planned_at = None

    def _notice_leap(self, now: int, steady: int) -> None:
        """Where the machine's clock was set ahead, or the machine slept, no split was silent."""
        if self._looked is not None:
            clock, before = self._looked
            if (now - clock) - (steady - before) > _LEAP:
                self._first = now
        self._looked = now, steady

    def _move(self, before: Manifest, now: int) -> list[Split]:
        """Every split as it will be after the next epoch, but for its watermark."""
        existing = {(s.input, s.name): s for s in before.splits}
        next_id = before.free_split_id()
        moved = []
        for read in self._program.sources():
            source = self._sources[read.name]
            source.discover()
            for name in self._splits_of(read.name):
                split = existing.get((read.name, name))
                if split is None:
                    split = Split(next_id, read.name, name, source.start(name), seen=now)
                    next_id += 1
                moved.append(self._awake(split, now))
        newest = [self._latest(s) for s in moved]
        self._all_read = all(
            s.at == end if self._sources[s.input].loops else s.state == ENDED
            for s, end in zip(moved, newest, strict=True)
        )
        allowed = self._allow(before, moved, newest, self._held_back(moved, newest, now))
        return [
            replace(self._settled(s, at, latest, now), shed=shed)
            for s, (at, shed), latest in zip(moved, allowed, newest, strict=True)
        ]

    def _splits_of(self, input: str) -> list[str]:
        """The splits of an input; a run until now leaves out those that came later."""
        source = self._sources[input]
        pinned = self._only_now or (self._ending and not source.bounded)
        known = {split for name, split in self._targets if name == input}
        return sorted(s for s in source.splits() if not pinned or not known or s in known)

    def _awake(self, split: Split, now: int) -> Split:
        """The time between two runs is no silence of a split; nor is a leap of the clock."""
        self._first = now if self._first is None else self._first
        return replace(split, seen=max(split.seen, self._first))

    def _latest(self, split: Split) -> Any:
        source = self._sources[split.input]
        if source.loops or (not self._only_now and (source.bounded or not self._ending)):
            return source.latest(split.name)
        place = (split.input, split.name)
        if place not in self._targets:
            latest = source.latest(split.name)
            if source.gathering(split.name):
                return latest
            self._targets[place] = latest
        return self._targets[place]

    def _has_more(self, split: Split, latest: Any) -> bool:
        """Whether it has rows that are not read yet, those that this run leaves out included."""
        if split.at != latest or not self._only_now:
            return bool(split.at != latest)
        return bool(split.at != self._sources[split.input].latest(split.name))

    def _exhausted(self, splits: list[Split]) -> bool:
        """Whether all that was there is read, or what is not waits for rows that came later."""
        inputs = [(self._sources[s.input], s.name) for s in splits]
        if any(source.unsettled(name) or source.gathering(name) for source, name in inputs):
            return False
        unread = [s for s in splits if s.at != self._latest(s)]
        live = [s for s in splits if s.state == LIVE and not self._has_more(s, self._latest(s))]
        return not unread or not any(s.input in self._aligned for s in live)

    def _held_back(self, splits: list[Split], newest: list[Any], now: int) -> frozenset[int]:
        """The splits that wait until others have caught up."""
        if not self._aligned:
            return frozenset()
        live = set()
        for split, end in zip(splits, newest, strict=True):
            more, ended = self._has_more(split, end), self._ended(split, split.at, end)
            idle = not more and self._sources[split.input].idle(split.name, split.at)
            state = liveness(self._read(split), split, now, more=more, ended=ended)
            if state == LIVE and not idle:
                live.add(split.id)
        return too_far_ahead(splits, live, self._aligned)

    def _allow(
        self, before: Manifest, splits: list[Split], newest: list[Any], held_back: frozenset[int]
    ) -> list[tuple[Any, Mapping[str, Any] | None]]:
        """How far each split may go, so that the epoch has about the rows allowed, and what is
        shed of it."""
        lags = [
            self._sources[s.input].rows(s.name, s.at, end) if s.at != end else 0
            for s, end in zip(splits, newest, strict=True)
        ]
        self._waiting = sum(lags)
        ends = [s.at if s.id in held_back else end for s, end in zip(splits, newest, strict=True)]
        lags = [0 if s.id in held_back else lag for s, lag in zip(splits, lags, strict=True)]
        total, budget = sum(lags), self._admission.rows
        shed = self._shedder.parts(
            list(zip(splits, ends, lags, strict=True)),
            0 if self._ending or self._only_now else budget,
            before.priorities or {},
        )
        if total <= budget:
            return [(end, None) for end in ends]
        shares = [max(1, budget * lag // total) if lag else 0 for lag in lags]
        shares = self._worth_reading(splits, lags, shares, budget)
        return [
            shed[s.id]
            if s.id in shed
            else (self._sources[s.input].clamp(s.name, s.at, end, share) if share else s.at, None)
            for s, end, share in zip(splits, ends, shares, strict=True)
        ]

    def _worth_reading(
        self, splits: list[Split], lags: list[int], shares: list[int], budget: int
    ) -> list[int]:
        """Shares too small to be worth reading, put together for the splits furthest behind."""
        shares = list(shares)
        most = [min(self._sources[s.input].least, budget) for s in splits]
        least = [min(lag, worth) for lag, worth in zip(lags, most, strict=True)]
        small = [i for i, share in enumerate(shares) if share < least[i]]
        left = sum(shares[i] for i in small)
        for i in sorted(small, key=lambda i: (splits[i].watermark, splits[i].id)):
            shares[i] = least[i] if left > 0 else 0
            left -= shares[i]
        return shares

    def _settled(self, split: Split, at: Any, latest: Any, now: int) -> Split:
        more, ended = self._has_more(split, latest), self._ended(split, at, latest)
        after = after_epoch(self._read(split), split, at, now, more=more, ended=ended)
        source = self._sources[split.input]
        watermark = max(after.watermark, source.watermark(split.name, at))
        idle = after.state == LIVE and source.idle(split.name, at)
        return replace(after, watermark=watermark, state=IDLE if idle else after.state)

    def _ended(self, split: Split, at: Any, latest: Any) -> bool:
        source = self._sources[split.input]
        if source.loops:
            return self._all_read
        pinned = self._ending and not source.bounded and (split.input, split.name) in self._targets
        return bool(at == latest and (pinned or source.ended(split.name, at)))

    def _read(self, split: Split) -> Read:
        read = self._program.nodes[split.input]
        assert isinstance(read, Read)
        return read

    def _rows(self, split: Split, begun: Mapping[tuple[str, str], Any]) -> int:
        source = self._sources[split.input]
        begin = begun.get((split.input, split.name), source.start(split.name))
        return source.rows(split.name, begin, split.at) if begin != split.at else 0

    def _worthwhile(self, manifest: Manifest, after: list[Split], now: int) -> bool:
        """Whether there are rows, an end, or something due."""
        before = {(s.input, s.name): s for s in manifest.splits}
        for split in after:
            old = before.get((split.input, split.name))
            start = old.at if old else self._sources[split.input].start(split.name)
            if split.at != start or (split.state == ENDED and (old is None or old.state != ENDED)):
                return True
        holds = {n: f.holds for n, f in manifest.ops.items() if f.holds is not None}
        return any(
            now >= facts.wake or self._reached(node, after, now, holds) >= facts.next
            for node in self._program.stateful()
            if (facts := manifest.ops.get(node.name)) is not None
            and min(facts.next, facts.wake) < MAX_TIME
        )

    def _reached(
        self, node: Stateful, splits: list[Split], now: int, holds: Mapping[str, int]
    ) -> int:
        inputs, hold = self._upstream[node.name], self._holds[node.name]
        reached = reached_by(node.processing, inputs, splits, now, hold)
        return reached if node.processing else held_back(self._program, node.name, reached, holds)

    # its tasks

    def tasks(self, start: Offset, end: Offset) -> list[SourceTask]:
        """What the source tasks of the epoch from `start` to `end` do."""
        if self._planned[0] != end.epoch:
            self._planned = (end.epoch, self._plan(start, end))
        return self._planned[1]

    def _plan(self, start: Offset, end: Offset) -> list[SourceTask]:
        before = self._manifest(start.epoch)
        epoch = Epoch(
            number=end.epoch,
            attempt=uuid.uuid4().hex,
            clock=end.clock,
            folder=str(self._log.folder),
            slots=self._pace.slots,
            tasks=self._pace.tasks,
            before={name: facts.watermark for name, facts in before.ops.items()},
            over={n: facts.over for n, facts in before.ops.items() if facts.over is not None},
            splits=end.splits,
            lag=end.lag or 0,
            resent=end.resent,
        )
        if end.epoch in self._log.epochs():
            return [SourceTask(0, epoch, replay=True)]
        if end.resent is not None:
            self._resends.read(end.resent)  # a damaged one is refused here, before tasks fail on it
        begun = {(s.input, s.name): s.at for s in before.splits}
        return [
            SourceTask(i, epoch, tuple(pieces), before.state if i == 0 else None)
            for i, pieces in enumerate(self._share(end.splits, begun))
        ]

    def _share(
        self, splits: Sequence[Split], begun: Mapping[tuple[str, str], Any]
    ) -> list[list[Piece]]:
        """The ranges to read, dealt out to as many tasks as their rows are worth."""
        rows = {s.id: self._rows(s, begun) for s in splits}
        total = sum(rows.values())
        count = max(1, min(self._pace.tasks, -(-total // _ROWS_PER_TASK)))
        loads, shares = [0] * count, [list[Piece]() for _ in range(count)]
        for split in sorted(splits, key=lambda s: (-rows[s.id], s.id)):
            source = self._sources[split.input]
            begin = begun.get((split.input, split.name), source.start(split.name))
            if begin == split.at:
                continue
            skipped = (split.shed or {}).get("before", begin)
            if skipped != begin and source.dense:
                shares[0].append(Piece(split.id, Range(split.name, begin, skipped), shed=True))
            pieces = max(1, -(-rows[split.id] * count // max(total, 1)))
            if isinstance(self._read(split).watermark, CustomWatermark):
                pieces = 1  # its object sees all rows of the split, in order
            read = [] if source.dense or skipped == begin else [(begin, skipped, True)]
            read += [] if skipped == split.at else [(skipped, split.at, False)]
            for first, last, shed in read:
                for part in source.cut(split.name, first, last, pieces):
                    lightest = loads.index(min(loads))
                    shares[lightest].append(Piece(split.id, part, shed))
                    loads[lightest] += max(1, rows[split.id] // pieces)
        return shares

    def committed(self, end: Offset) -> None:
        """Tell the sources that everything before `end` is safe, and what savepoints hold.

        While a savepoint is created they are told nothing; the next epoch says it again.
        """
        with self._pins.held() as savepoints:
            if savepoints is None:
                return
            self._safe = end.epoch
            for read in self._program.sources():
                source, facts = self._sources[read.name], self._reads.get(read.name)
                if source.forgets:
                    id = read.name if facts is None else facts.id
                    source.hold(held_offsets(savepoints, id))
                reached = {s.name: s.at for s in end.splits if s.input == read.name}
                source.commit(reached)


# Requests to a running job: files in its folder that its planner looks for. `stop` asks it to
# start no further batch; `drain` asks it to read what is there now, close every window and end.


_STOP, _DRAIN = "stop", "drain"


def request_stop(folder: str | Path) -> None:
    (Path(folder) / _STOP).touch()


def request_drain(folder: str | Path) -> None:
    (Path(folder) / _DRAIN).touch()


def clear_requests(folder: str | Path) -> None:
    for flag in (_STOP, _DRAIN):
        (Path(folder) / flag).unlink(missing_ok=True)


def stop_requested(folder: str | Path) -> bool:
    return (Path(folder) / _STOP).exists()


def drain_requested(folder: str | Path) -> bool:
    return (Path(folder) / _DRAIN).exists()
