"""A stand-in for `hr.run` that needs no Spark: the same program, driven in process.

Only for tests of what surrounds a run (the command line, the guide); the run itself is
tested on Spark. A run without an end stops when there is nothing left to do, as if Ctrl-C
had been pressed.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.engine import run as engine
from headrace.engine.reporter import Reporter
from headrace.plan.program import build
from headrace.runtime.progress import Progress, progress_of
from headrace.runtime.start import folder_of
from headrace.settings import Settings
from headrace.testing import Driver


class LocalRun:
    def __init__(
        self,
        job: Any,
        *,
        until: str | None = None,
        folder: str | None = None,
        max_batch: int | None = None,
        drop: Collection[str] = (),
        quiet: bool = False,
        **_: Any,
    ) -> None:
        self._reporter = Reporter(job.name)
        self._reporter.starting()
        self.folder = folder_of(build(job), Settings.load(), folder)
        self._driver = Driver(job, self.folder, until=until, max_batch=max_batch, drop=drop)
        self._state, self._until = "running", until
        self.comparison = self._driver.start.comparison
        self.guarantees = {n: s.guarantee for n, s in self._driver.start.bundle.sinks.items()}

        self._reporter.started(self)

    @property
    def status(self) -> engine.Status:
        manifest = self._driver.manifest
        return engine.Status(self._state, manifest.epoch if manifest else 0)

    @property
    def progress(self) -> Progress | None:
        manifest = self._driver.manifest
        return progress_of(manifest, {}) if manifest else None

    def wait(self, timeout: float | None = None) -> engine.Status:
        self._state = "failed"
        try:
            while progress := self._driver.epoch():
                self._reporter.progress(progress)
            self._state = "ended" if self._until == "end" else "stopped"
        finally:
            self._driver.close()
            self._reporter.finished(self)
        return self.status

    def output(self, name: str) -> pa.Table:
        return self._driver.output(name)


def forget(folder: Path) -> None:
    """Unload the modules that were loaded from files in `folder`."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}/"):
            del sys.modules[name]


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let everything that starts a run start it in process."""
    monkeypatch.setattr(engine, "run", LocalRun)
