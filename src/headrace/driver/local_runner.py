"""One epoch after another in this process: the same tasks as on Spark, without Spark.

The harness and the in-process tests drive a job with this. Tasks run one after the other;
the shuffle is a dictionary.
"""

from __future__ import annotations

from collections import defaultdict

from headrace.driver.commit import Committer
from headrace.driver.planner import Planner
from headrace.epoch.bundle import Bundle
from headrace.epoch.envelope import REPORT, Envelope
from headrace.epoch.report import Report
from headrace.epoch.values import SourceTask
from headrace.state.manifest import Manifest
from headrace.task.level_task import run_level
from headrace.task.source_task import run_source


class LocalRunner:
    def __init__(self, bundle: Bundle, planner: Planner, committer: Committer) -> None:
        self._bundle, self._planner, self._committer = bundle, planner, committer
        self._offset = planner.start()

    def epoch(self) -> Manifest | None:
        """Run the next epoch; None when there is nothing to do."""
        end = self._planner.advance(self._offset)
        if end == self._offset:
            return None
        tasks = self._planner.tasks(self._offset, end)
        manifest = self._committer.commit(run_tasks(self._bundle, tasks))
        self._offset = end
        self._planner.committed(end)
        return manifest


def run_tasks(bundle: Bundle, tasks: list[SourceTask]) -> list[Report]:
    """All tasks of one epoch, level by level; what they report."""
    sent = [e for task in tasks for e in run_source(bundle, task)]
    for level in range(1, bundle.program.depth + 1):
        by_task: dict[int, list[Envelope]] = defaultdict(list)
        for envelope in sent:
            by_task[envelope.task].append(envelope)
        sent = [e for i in sorted(by_task) for e in run_level(bundle, level, by_task[i])]
    return [Report.from_json(e.note()) for e in sent if e.op == REPORT]
