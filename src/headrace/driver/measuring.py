"""What the commit of an epoch adds to what a job measures of itself."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from headrace.buckets import Histogram, added, shifted
from headrace.epoch.report import Total
from headrace.epoch.values import Offset
from headrace.plan.logical import kind_of
from headrace.plan.program import Program
from headrace.state.measures import Histograms, Measures

PUBLISHING = "publishing.json"  # in the job's folder


class Measuring:
    """How long publishing an epoch takes is known when its manifest is written already: a note
    says it to the next commit, which on Spark is in another process. Nobody depends on it."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._plan = {n.name: (kind_of(n), program.level(n.name)) for n in program.nodes.values()}
        self._note = folder / PUBLISHING

    def published(self, epoch: int, took: Mapping[tuple[str, ...], float]) -> None:
        """Publishing an epoch has taken so many ms, by outputs that are published as one."""
        outputs = {name: ms / len(names) for names, ms in took.items() for name in names}
        note = json.dumps({"epoch": epoch, "outputs": outputs}).encode()
        with suppress(OSError):
            _overwrite(self._note, note)

    def _published(self, epoch: int) -> dict[str, float]:
        """How long the epoch has taken to publish, by output, as far as it is known."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            outputs = {str(name): float(ms) for name, ms in note["outputs"].items()}
            sound = note["epoch"] == epoch and all(map(math.isfinite, outputs.values()))
            return outputs if sound else {}
        except (OSError, ArithmeticError, ValueError, LookupError, TypeError, AttributeError):
            return {}  # none, or damaged

    def after(self, before: Measures, total: Total, end: Offset, wall: int) -> Measures:
        """After an epoch that is committed at `wall`; what it measures of its records is by the
        epoch's clock, from which that is some time on."""
        since, published = wall - end.clock, self._published(end.epoch - 1)
        return Measures(
            plan=self._plan,
            tasks=total.tasks,
            took=before.took + max(0, since),
            retries=before.retries + total.retries,
            work=_sums(before.work, total.work),
            longest=_rounded(total.longest),
            published=_sums(before.published, published),
            publishes={
                name: before.publishes.get(name, 0) + (name in published)
                for name in sorted({*before.publishes, *published})
            },
            lags=end.looks.lags,
            waits=end.looks.waits,
            event=_histograms(before.event, total.ages, since),
            ingest=_histograms(before.ingest, {**end.looks.ages, **total.arrived}, since),
            gauges={s: {**before.gauges.get(s, {}), **total.gauges.get(s, {})}
                    for s in sorted({*before.gauges, *total.gauges})},
            histograms={
                step: _histograms(before.histograms.get(step, {}), total.histograms.get(step, {}))
                for step in sorted({*before.histograms, *total.histograms})
            },
        )  # fmt: skip


def _overwrite(path: Path, note: bytes) -> None:
    """In place, and spaces over what was longer: half a note counts as none, and a file that is
    new or cut off is one for which file systems may wait."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o644)
    try:
        os.pwrite(file, note.ljust(os.fstat(file).st_size), 0)
    finally:
        os.close(file)


def _sums(before: Mapping[str, float], now: Mapping[str, float]) -> dict[str, float]:
    names = sorted({*before, *now})
    return _rounded({name: before.get(name, 0) + now.get(name, 0) for name in names})


def _rounded(ms: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 2) for name, value in ms.items()}


def _histograms(before: Histograms, now: Histograms, by: int = 0) -> dict[str, dict[int, int]]:
    """Both together, what is new of numbers that are larger by so much."""
    none: Histogram = {}
    names = sorted({*before, *now})
    moved = {
        name: shifted(now.get(name, none), by) if by else now.get(name, none) for name in names
    }
    return {name: added(before.get(name, none), moved[name]) for name in names}
