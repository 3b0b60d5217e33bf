"""Whether a job that has a process goes on: nothing new for a while, although there should be.

A job without new records commits nothing, and that is as it should be. So it counts as hanging only
where there is a sign: its run says that it is stalled (`inspect/stall.py`), rows wait for it, or it
is still starting.
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


class HangingJobs:
    """Looks at every job again and again; the signs of those that hang, in words."""

    def __init__(self, after: int, starting: int) -> None:
        self._after, self._starting = after, starting  # ms
        self._marks: dict[str, Movement] = {}
        self._texts: dict[str, str] = {}

    def text(self, name: str) -> str | None:
        """What is to be said of a job that hangs."""
        return self._texts.get(name)

    def since(self, name: str, now: int) -> int:
        """For how long nothing of a job has moved."""
        mark = self._marks.get(name)
        return 0 if mark is None else now - mark.at

    def forget(self, name: str) -> None:
        self._marks.pop(name, None)
        self._texts.pop(name, None)

    def see(self, record: JobRecord, manifest: Manifest | None, now: int) -> str | None:
        """What is news: that it hangs, or that it goes on."""
        epoch = 0 if manifest is None else manifest.epoch
        mark = self._marks.get(record.name)
        here = (record.run, record.state, epoch)
        if mark is None or (mark.run, mark.state, mark.epoch) != here:
            self._marks[record.name] = Movement(*here, now)
            return "goes on" if self._texts.pop(record.name, None) else None
        sign = self._sign(record, manifest, now - mark.at)
        if sign is None:
            return "goes on" if self._texts.pop(record.name, None) else None
        news = sign if record.name not in self._texts else None
        self._texts[record.name] = sign
        return news

    def _sign(self, record: JobRecord, manifest: Manifest | None, quiet: int) -> str | None:
        if record.state == State.STARTING:
            return f"has been starting for {span(quiet)}" if quiet >= self._starting else None
        reported = stall.reason(record.name, record.folder)
        if reported is not None:
            return reported.text
        if quiet >= self._after and manifest is not None and manifest.lag > 0:
            return f"no new batch for {span(quiet)}, and {manifest.lag:,} rows wait"
        return None
