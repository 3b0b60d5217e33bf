"""Whether a job that has a process goes on: nothing new for a while, although there should be.

A job without new records commits nothing, and that is as it should be. So it counts as hanging only
where there is a sign: its run says that it is stalled (`inspect/stall.py`), or says nothing more
(`inspect/live.py`), rows wait for it, or it is still starting.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.inspect import stall
from headrace.inspect.progress import span
from headrace.server.lifecycle import State
from headrace.server.records import JobRecord
from headrace.state.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Movement:
    """What a job was at when it was seen to move."""

    run: int
    state: State
    epoch: int
    at: int  # by a clock that only goes forward


@dataclass(frozen=True, slots=True)
class HangingSign:
    """That a job hangs, in words, and since when it does."""

    text: str
    since: int


class HangingJobs:
    """Looks at every job again and again; the signs of those that hang."""

    def __init__(self, after: int, starting: int, silent: int = 60_000) -> None:
        self._after, self._starting, self._silent = after, starting, silent  # ms
        self._marks: dict[str, Movement] = {}
        self._words: dict[str, tuple[int, int]] = {}  # the last of a run, and since when
        self._signs: dict[str, HangingSign] = {}

    def text(self, name: str) -> str | None:
        """What is to be said of a job that hangs."""
        sign = self._signs.get(name)
        return None if sign is None else sign.text

    def since(self, name: str, now: int) -> int:
        """For how long a job has hung."""
        sign = self._signs.get(name)
        return 0 if sign is None else now - sign.since

    def forget(self, name: str) -> None:
        self._marks.pop(name, None)
        self._words.pop(name, None)
        self._signs.pop(name, None)

    def see(
        self, record: JobRecord, manifest: Manifest | None, now: int, word: int | None = None
    ) -> str | None:
        """What is news: that it hangs, or that it goes on. `word`: when its run has last said how
        it is doing, by whatever clock."""
        epoch = 0 if manifest is None else manifest.epoch
        mark = self._marks.get(record.name)
        if mark is not None and mark.run != record.run:
            self._words.pop(record.name, None)
        if word is not None and self._words.get(record.name, (None,))[0] != word:
            self._words[record.name] = word, now
        here = (record.run, record.state, epoch)
        if mark is None or (mark.run, mark.state, mark.epoch) != here:
            self._marks[record.name] = Movement(*here, now)
            return "goes on" if self._signs.pop(record.name, None) else None
        sign, known = self._sign(record, manifest, mark.at, now), self._signs.get(record.name)
        if sign is None:
            return "goes on" if self._signs.pop(record.name, None) else None
        if known is not None:  # it may be another sign of the same
            sign = HangingSign(sign.text, min(sign.since, known.since))
        self._signs[record.name] = sign
        return sign.text if known is None else None

    def _sign(
        self, record: JobRecord, manifest: Manifest | None, moved: int, now: int
    ) -> HangingSign | None:
        quiet = now - moved
        if record.state == State.STARTING:
            late = quiet >= self._starting
            return HangingSign(f"has been starting for {span(quiet)}", moved) if late else None
        reported = stall.reason(record.name, record.folder)
        if reported is not None:
            return HangingSign(reported.text, now)
        if quiet >= self._after and manifest is not None and manifest.lag > 0:
            text = f"no new batch for {span(quiet)}, and {manifest.lag:,} rows wait"
            return HangingSign(text, moved)
        _, since = self._words.get(record.name, (0, now))
        if now - since >= self._silent:
            return HangingSign(f"its process has said nothing for {span(now - since)}", since)
        return None
