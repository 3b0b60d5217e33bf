"""The figures of every job, once a second: in memory for the list of jobs, and stored.

A manifest is read only when there is another one. Of a job without a process the figures are those
of its last epoch, without rates and shares of time, of which it has none; nothing is stored. How a
job is doing is never a reason to fail: a folder that cannot be read has no figures.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from headrace.errors import HeadraceError
from headrace.inspect.figure_values import Figures
from headrace.inspect.figures import Sampler, figures
from headrace.inspect.live import read_live
from headrace.server.desk import Desk
from headrace.server.lifecycle import WITH_PROCESS
from headrace.server.records import JobRecord
from headrace.state.manifest import Manifest

EVERY = 1.0  # seconds
_THIN = 60_000  # ms between two times that what is stored is thinned
_EARLIER = "the figures cannot be stored"


class Sampling:
    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._samplers: dict[str, Sampler] = {}
        self._figures: dict[str, Figures] = {}
        self._at_rest: dict[str, tuple[int, Manifest]] = {}  # run and manifest of what is known
        self._thinned = 0
        self._failed = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="headrace-samples", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(EVERY):
            self.sample()

    def of(self, name: str) -> Figures | None:
        """The last figures of a job; None if it has none."""
        return self._figures.get(name)

    def all(self) -> dict[str, Figures]:
        return dict(self._figures)

    def forget(self, name: str) -> None:
        for known in (self._samplers, self._figures, self._at_rest):
            known.pop(name, None)

    def sample(self) -> None:
        """Look at every job, and store what those that have a process are doing."""
        now, taken = self._desk.now(), {}
        for record in self._desk.records():
            with suppress(Exception):
                found = self._look(record, now)
                if found is not None and record.state in WITH_PROCESS:
                    taken[record.name] = found.series()
        try:
            if taken:
                self._desk.store.add_samples(now, taken)
            if abs(now - self._thinned) >= _THIN:
                self._thinned = now
                self._desk.store.thin(now)
            self._failed = False
        except HeadraceError as error:  # the disk is full, perhaps: jobs must not suffer from it
            if not self._failed:
                with suppress(HeadraceError):
                    self._desk.say(None, "error", f"{_EARLIER}: {error}")
            self._failed = True

    def _look(self, record: JobRecord, now: int) -> Figures | None:
        manifest = self._desk.manifest(record)
        if manifest is None:
            self._figures.pop(record.name, None)
            return None
        if record.state in WITH_PROCESS:
            self._at_rest.pop(record.name, None)
            sampler = self._samplers.setdefault(record.name, Sampler())
            found = sampler.see(now, manifest, read_live(record.folder, now))
        elif self._at_rest.get(record.name) == (record.run, manifest):
            return self._figures.get(record.name)
        else:
            self._samplers.pop(record.name, None)
            self._at_rest[record.name] = (record.run, manifest)
            found = figures(manifest.wall, manifest).at_rest()
        self._figures[record.name] = found
        return found
