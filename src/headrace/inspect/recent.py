"""The figures of a job's folder that is looked at again and again, and how they were until now.

For whoever watches without a server: a terminal, a notebook. It begins with what the manifests
say of the last minute, so that the first look has rates.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.inspect.figure_values import Figures
from headrace.inspect.figures import Sampler
from headrace.inspect.live import Live, read_live
from headrace.inspect.samples import samples_before
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest

PAST = 300_000  # ms that are shown
SERIES = (
    "rate_in", "rate_out", "lag_rows", "latency.event.p95", "latency.ingest.p95",
    "watermark_delay", "capacity",
)  # fmt: skip
_EVERY = 1_000  # ms between two points


class Recent:
    def __init__(self, folder: str | Path) -> None:
        self.log = EpochLog(folder)
        self.live: Live | None = None  # what the run has said of itself, at the last look
        self._manifest: Manifest | None = None
        self._file: Any = None  # that it was read from
        self._sampler: Sampler | None = None
        self._is_held = True  # at the last look
        self._rest: Figures | None = None  # as of its last batch, while it does not run
        self._points = deque[tuple[int, Mapping[str, float | None]]]()

    def look(self, now: int) -> Figures | None:
        """The figures now; None before the first batch. Of a job that does not run, as of its
        last batch."""
        file = self.log.newest_file()
        if self._manifest is None or self._file != file:
            self._file, self._manifest, self._rest = file, self.log.latest(), None
        if self._manifest is None:
            return None
        if self._sampler is None:
            self._sampler = Sampler(*samples_before(self.log, self._manifest))
        is_held = self.log.is_held()
        if not is_held and self._rest is not None:
            return self._rest
        self.live = read_live(self.log.folder, now) if is_held else None
        at = now if is_held else self._manifest.wall
        figures = self._sampler.see(at, self._manifest, self.live)
        self._rest = None if is_held else figures
        if not self._points or at >= self._points[-1][0] + _EVERY:
            found = figures.series()
            self._points.append((at, {name: found.get(name) for name in SERIES}))
        if not is_held and is_held != self._is_held:  # nothing is known until it runs again
            self._points.append((self._points[-1][0] + _EVERY, dict.fromkeys(SERIES)))
        self._is_held = is_held
        while self._points[0][0] < at - PAST:
            self._points.popleft()
        return figures

    @property
    def ended(self) -> bool:
        """Whether it had come to its end, at the last look."""
        return self._manifest is not None and self._manifest.ended

    def times(self) -> list[int]:
        return [time for time, _ in self._points]

    def series(self) -> dict[str, list[float | None]]:
        """How the figures of `SERIES` were at these times."""
        return {name: [found[name] for _, found in self._points] for name in SERIES}
