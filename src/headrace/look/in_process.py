"""One start of a job in this process: the real plan, operators, state and outputs, no Spark.

Only what Spark does is replaced: tasks run one after the other and the shuffle is a
dictionary. Everything else, the job's folder included, is what a run on Spark has, so the
two can take turns on one folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.clock import Clock, SystemClock
from headrace.driver.commit import Committer
from headrace.driver.local_runner import LocalRunner
from headrace.driver.planner import Pace, Planner, clear_requests
from headrace.driver.start import prepare
from headrace.epoch.bundle import REAL, Edges
from headrace.inspect.progress import Progress, progress_of
from headrace.plan.program import Drafted, build
from headrace.settings import Settings
from headrace.sinks import collected
from headrace.state.manifest import Manifest


class Driver:
    """One start of a job in this process."""

    def __init__(
        self,
        job: Drafted,
        folder: str | Path,
        *,
        until: str | None = "end",
        tasks: int = 2,
        max_batch: int | None = None,
        first_batch: int | None = None,
        clock: Clock | None = None,
        drop: Any = (),
        take_over: bool = True,  # of two in one process the first has crashed
        go_back: bool = False,
        for_good: bool = True,
        silent: bool = True,  # a test may end it later
        edges: Edges = REAL,
    ) -> None:
        self.program = build(job)
        self.clock = clock or SystemClock()
        settings = Settings.load(max_batch=max_batch)
        start = prepare(
            self.program,
            settings,
            tasks,
            folder=str(folder),
            until=until,
            drop=drop,
            take_over=take_over,
            go_back=go_back,
            for_good=for_good,
            silent=silent,
            clock=self.clock,
            edges=edges,
        )
        self.start = start
        clear_requests(start.log.folder)
        pace = Pace(
            min(tasks, start.slots),
            start.slots,
            until,
            max_batch=max_batch,
            first_batch=first_batch,
        )
        planner = Planner(start.bundle, start.log, self.clock, pace)
        committer = Committer(
            start.bundle, start.log, start.token, start.slots, self.clock, settings.keep_epochs
        )
        self._runner = LocalRunner(start.bundle, planner, committer)
        self.manifest: Manifest | None = start.log.latest()

    @property
    def ended(self) -> bool:
        """Whether all inputs have ended and all that came of them is done."""
        return self.manifest is not None and self.manifest.ended

    def epoch(self) -> Progress | None:
        """Run one epoch; None when there is nothing to do. What fails here has ended."""
        try:
            manifest = self._runner.epoch()
        except BaseException:
            self._close_steps()
            self.start.log.release()
            raise
        if manifest is None:
            return None
        self.manifest = manifest
        return progress_of(manifest, {})

    def drain(self, most: int = 10_000) -> Progress | None:
        """Run epochs until there is nothing to do; the last one's figures."""
        last = None
        for _ in range(most):
            progress = self.epoch()
            if progress is None:
                return last
            last = progress
        raise AssertionError(f"there is still something to do after {most:,} epochs")

    def output(self, name: str) -> pa.Table:
        """What the "collect:" output `name` holds."""
        return collected(str(self.start.log.folder), name)

    def close(self) -> None:
        """Close the inputs and release the job's folder."""
        for source in self.start.bundle.sources.values():
            source.close()
        self._close_steps()
        self.start.log.release()

    def _close_steps(self) -> None:
        for node in self.program.stateful():
            node.what.close()
