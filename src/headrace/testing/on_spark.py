"""A stage on real Spark: the process's session, one query that stays, one batch per step.

The only module of `testing` that knows the engine; it is imported when a test asks for it.
"""

from __future__ import annotations

from headrace.driver.planner import Pace
from headrace.driver.start import Start, prepare
from headrace.engine.run import Run
from headrace.plan.program import build
from headrace.settings import Settings
from headrace.testing.drive import MANY, Play


class OnSpark:
    def __init__(self, play: Play) -> None:
        settings = Settings.load(max_batch=MANY)
        self.start: Start = prepare(
            build(play.job),
            settings,
            play.tasks,
            folder=play.folder,
            drop=play.drop,
            clock=play.clock,
            edges=play.edges,
            take_over=True,
        )
        slots = self.start.slots
        pace = Pace(min(play.tasks, slots), slots, max_batch=MANY)
        self._run = Run(self.start, settings, pace, False, None, None)

    def settle(self) -> None:
        self._run.catch_up()

    def close(self) -> None:
        self._run.stop()
