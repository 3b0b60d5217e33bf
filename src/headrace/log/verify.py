"""Every file of a topic looked at, and nothing changed: what is damaged, and what can be mended.

Readers and appenders check what they touch; here everything is checked: settings, head, every block
of every segment, indexes, what was compacted, locks. What a reader would be refused is a flaw that
does harm; what the next appender or reader puts in order by itself is one that does not.

A topic may be in use meanwhile. What has gone because retention was faster is no flaw, and what
lies beyond the head is not judged while an appender is at work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from headrace.errors import LogError
from headrace.files import irregular, put_away, unusable
from headrace.log import compaction
from headrace.log import topic as topics
from headrace.log.contract import unreadable
from headrace.log.head import Head
from headrace.log.lock import PATIENCE, is_taken
from headrace.log.recovery import producers as producers_of
from headrace.log.recovery import recover, survey
from headrace.log.segment import (
    SegmentView,
    index_path,
    read_index,
    read_snapshot,
    rewrite_index,
    segment_path,
    segments,
)
from headrace.log.topic import Topic

Tick = Callable[[Path], None]  # called with each file that was read
_MENDED_HEAD = "made again from the segments, as after a restart of the machine"


@dataclass(frozen=True, slots=True)
class Flaw:
    """Something that is wrong with a file of a topic."""

    path: Path
    wrong: str
    means: str
    harm: bool  # whether somebody is refused because of it
    reads: bool = True  # whether readers are, too
    lost: tuple[tuple[int, int, int], ...] = ()  # partition, first and end; none: it may be all
    mended: str = ""  # what `mend` does; "" if nothing is provably right
    mend: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(slots=True)
class VerifiedTopic:
    """A topic as its files show it."""

    path: Path
    topic: Topic | None = None
    head: Head | None = None  # where it ends; None if that cannot be told
    producers: dict[str, int] = field(default_factory=dict)
    flaws: list[Flaw] = field(default_factory=list)


def is_topic(folder: Path) -> bool:
    """Whether a folder is one of a topic, perhaps a damaged one."""
    if (folder / "topic.json").is_file():
        return True
    return folder.is_dir() and (folder / "head").exists() and bool(segments(folder))


def verify(folder: Path, tick: Tick) -> VerifiedTopic:
    """All that is to be known of the topic in `folder`; changes nothing."""
    facts = VerifiedTopic(folder)
    try:
        facts.topic = topics.load(folder)
    except LogError as error:
        tick(folder / "topic.json")
        wrong = irregular(folder / "topic.json") or _wrong(error)
        facts.flaws.append(_refused(folder / "topic.json", wrong, "the topic cannot be used"))
        return facts
    tick(folder / "topic.json")
    if facts.topic is None:
        wrong = irregular(folder / "topic.json") or "it is missing"
        facts.flaws.append(_refused(folder / "topic.json", wrong, "the topic cannot be used"))
        return facts
    facts.flaws += _locks(facts.topic)
    for _ in range(2):  # the head may have moved past segments that retention has removed
        facts.head, flaws = _end(facts.topic, tick)
        found = list(flaws)
        if facts.head is not None:
            found += _segments(facts.topic, facts.head, tick)
            if _first(facts.topic) > facts.head.first:
                continue
        break
    facts.flaws += found
    if facts.topic.compacted:
        facts.flaws += _compacted(facts.topic, tick)
    if facts.head is not None and not any(f.harm for f in facts.flaws):
        facts.producers = producers_of(folder, facts.topic.tag, facts.head)
    return facts


def _first(topic: Topic) -> int:
    try:
        head, _ = topic.head.read()
    except LogError:
        return 0
    return 0 if head is None else head.first


def _locks(topic: Topic) -> Iterator[Flaw]:
    for path in (topic.write_lock, topic.sync_lock, topic.compact_lock):
        if wrong := unusable(path):
            means = "nothing can be appended, and no reader can mend the topic's head"
            again = partial(put_away, path)
            yield Flaw(path, wrong, means, True, False, (), "made again, empty", again)


# Where the topic ends.


def _end(topic: Topic, tick: Tick) -> tuple[Head | None, list[Flaw]]:
    path, busy = topic.head.path, is_taken(topic.sync_lock) or is_taken(topic.write_lock)
    tick(path)
    try:
        head, trusted = topic.head.read()
        whole = trusted or topic.head.is_whole()
    except LogError as error:
        means = "the topic can neither be read nor appended to"
        flaw = Flaw(path, irregular(path) or _wrong(error), means, True, mended=_MENDED_HEAD,
                    mend=partial(_new_head, topic))  # fmt: skip
        try:
            return survey(topic, None).head, [flaw]
        except (LogError, OSError) as error:
            return None, [_refused(path, flaw.wrong, means), _lost(topic, error)]
    flaws = list[Flaw]()
    if not whole and not busy:
        wrong = irregular(path) or ("a slot of it is damaged" if head else "it is damaged")
        means = "nothing: whoever opens the topic next makes it again"
        flaws.append(
            Flaw(path, wrong, means, False, mended=_MENDED_HEAD, mend=partial(_new_head, topic))
        )
    if busy and trusted:
        return head, flaws
    try:
        found = survey(topic, head)
    except FileNotFoundError:
        return head, flaws  # it goes at this moment, or a segment did
    except (LogError, OSError) as error:
        damage = error if isinstance(error, LogError) else unreadable(topic.path, error)
        if trusted:  # nobody goes beyond a head that is trusted
            return head, flaws if head is None else [*flaws, *_beyond(topic, head, damage)]
        return None, [*flaws, _lost(topic, damage)]
    if found.torn or found.unmade:
        size = found.torn + sum(p.stat().st_size for p in found.unmade)
        place = found.unmade[0] if found.unmade else segment_path(topic.path, found.head.segment)
        wrong = f"it ends with {size:,} bytes of an append that was not finished"
        means = "nothing: it was not acknowledged, and the next append cuts it off"
        cut = partial(recover, topic, PATIENCE, distrust=True)
        flaws.append(Flaw(place, wrong, means, False, mended="cut off", mend=cut))
    return found.head, flaws


def _beyond(topic: Topic, head: Head, damage: LogError) -> Iterator[Flaw]:
    """What lies beyond a trusted head cannot be gone on from; what is before it can be read."""
    path, bases = segment_path(topic.path, head.segment), segments(topic.path)
    if bases and head.segment < bases[0]:
        wrong = f"it is older than the segments: {path.name}, which it names, is gone"
        yield _refused(topic.head.path, wrong, "the topic cannot be used")
    elif path.is_file() and path.stat().st_size >= head.position:  # else the segment says it
        yield _refused(path, _wrong(damage), "what was appended last, and not published yet")


def _new_head(topic: Topic) -> None:
    if irregular(topic.head.path):
        put_away(topic.head.path)
    recover(topic, PATIENCE, distrust=True)


def _lost(topic: Topic, error: Exception) -> Flaw:
    """Damage because of which the end of the topic is not known."""
    bases = segments(topic.path)
    path = next(
        (p for b in bases if str(p := segment_path(topic.path, b)) in str(error)),
        segment_path(topic.path, bases[-1] if bases else 0),
    )
    return _refused(path, irregular(path) or _wrong(error), "the topic cannot be used")


# What it holds.


def _segments(topic: Topic, head: Head, tick: Tick) -> Iterator[Flaw]:
    ends, place = head.earliest, head.first
    while place <= head.segment:
        path, following = segment_path(topic.path, place), _after(topic, head, place)
        limit = head.position if place == head.segment else following - place
        until, edge = _ends_at(topic, head, following), place in (head.first, head.segment)
        walk = _SegmentWalk(topic, place, limit, ends, until, edge)
        yield from walk.flaws()
        if path.exists():
            tick(path)
        elif place == head.first:
            wrong = f"it names {path.name}, which is not there, or it is an older copy itself"
            yield _refused(topic.head.path, wrong, "the topic cannot be used")
        yield from _index(topic, walk)
        ends, place = walk.until, following


def _after(topic: Topic, head: Head, place: int) -> int:
    """Where the segment after the one at `place` begins; beyond the head if that is the last."""
    later = [b for b in segments(topic.path) if place < b <= head.segment]
    if place == head.segment:
        return head.segment + max(1, head.position)
    return min(later, default=head.segment)


def _ends_at(topic: Topic, head: Head, base: int) -> tuple[int, ...]:
    """How many records there were of each partition when a segment began; now if it is none."""
    if base <= head.segment:
        try:
            return read_snapshot(topic.path, base, topic.tag).ends
        except (LogError, FileNotFoundError):
            pass
    return head.ends


class _SegmentWalk:
    """All blocks of a segment, one after the other."""

    def __init__(
        self,
        topic: Topic,
        base: int,
        limit: int,
        ends: tuple[int, ...],
        until: tuple[int, ...],
        edge: bool,
    ) -> None:
        self.topic, self.base, self.limit, self.until = topic, base, limit, until
        self.path, self._ends = segment_path(topic.path, base), list(ends)
        self._edge = edge
        self.start = 0
        self.blocks = set[tuple[int, int, int]]()  # partition, offset, position
        self.whole = False

    def flaws(self) -> Iterator[Flaw]:
        try:
            snapshot = read_snapshot(self.topic.path, self.base, self.topic.tag)
            view = SegmentView(self.topic.path, self.base, self.topic.tag, self.limit)
        except FileNotFoundError:
            yield self._unusable("it is missing")
            return
        except LogError as error:
            yield self._unusable(_wrong(error))
            return
        if snapshot.ends != tuple(self._ends):
            yield self._flaw("it does not begin where the one before it ends")
            return
        self.start = snapshot.start
        try:
            for pos, header in view.headers(snapshot.start):
                p = header.partition
                if p >= len(self._ends) or header.base != self._ends[p]:
                    yield self._flaw(f"the block at byte {pos} does not follow the one before")
                    return
                self._ends[p] = header.end
                self.blocks.add((p, header.base, pos))
                try:
                    view.batch(pos, header, self.topic.columns_of(header.version))
                except (LogError, pa.ArrowException, IndexError) as error:
                    means = (
                        f"records {header.base} to {header.end - 1} of partition {p} cannot be read"
                    )
                    lost = ((p, header.base, header.end),)
                    yield Flaw(self.path, f"byte {pos}: {_wrong(error)}", means, True, lost=lost)
        except LogError as error:
            yield self._flaw(_wrong(error))
            return
        if tuple(self._ends) != tuple(self.until):
            yield self._flaw("it ends with other records than the topic's head says")
        self.whole = True

    def _unusable(self, wrong: str) -> Flaw:
        """Without the first or the last segment the topic cannot even be opened."""
        flaw = self._flaw(irregular(self.path) or wrong)
        return replace(flaw, reads=True, lost=()) if self._edge else flaw

    def _flaw(self, wrong: str) -> Flaw:
        """The rest of the segment cannot be read."""
        lost = tuple(
            (p, first, end)
            for p, (first, end) in enumerate(zip(self._ends, self.until, strict=True))
            if first < end
        )
        if not lost:
            return Flaw(self.path, wrong, "nothing can be appended", True, reads=False)
        texts = [f"records {first} to {end - 1} of partition {p}" for p, first, end in lost]
        return Flaw(self.path, wrong, f"{', '.join(texts)} cannot be read", True, lost=lost)


def _index(topic: Topic, walk: _SegmentWalk) -> Iterator[Flaw]:
    path = index_path(topic.path, walk.base)
    wrong = irregular(path)
    if wrong == "it is missing" or not walk.whole:
        return
    if not wrong and not read_index(path) <= walk.blocks:
        wrong = "it names blocks that are not there"
    if wrong:
        again = partial(_new_index, path, topic.path, walk.base, walk.start, walk.limit, topic.tag)
        means = "reading from an offset takes longer"
        yield Flaw(path, wrong, means, False, mended="made again from the segment", mend=again)


def _new_index(path: Path, *of: object) -> None:
    put_away(path)
    rewrite_index(*of)  # type: ignore[arg-type]


def _compacted(topic: Topic, tick: Tick) -> Iterator[Flaw]:
    named = sorted(topic.path.glob(f"*{compaction.SUFFIX}"))
    try:
        file = compaction.newest(topic)
        if file is None:
            return
        tick(file.path)
        for partition, end in enumerate(file.ends):
            for _ in file.read(topic, partition, 0, end):
                pass
    except LogError as error:
        means = "the topic cannot be read from its beginning"
        yield _refused(named[-1] if named else topic.path, _wrong(error), means)


def _refused(path: Path, wrong: str, means: str) -> Flaw:
    return Flaw(path, wrong, means, True)


def _wrong(error: Exception) -> str:
    """What is wrong, without the file's name, which is beside it."""
    return error.message.partition(": file '")[0] if isinstance(error, LogError) else str(error)


def topics_in(root: Path) -> list[Path]:
    """The folders of topics in that of a log, also of topics that are damaged."""
    names = sorted(os.listdir(root)) if root.is_dir() else []
    return [root / n for n in names if not n.startswith(".") and is_topic(root / n)]
