"""What the commit of an epoch adds to what a job measures of itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from headrace.buckets import Histogram, added, shifted
from headrace.epoch.report import Total
from headrace.epoch.values import Offset
from headrace.plan.logical import kind_of
from headrace.plan.program import Program
from headrace.state.measures import Histograms, Measures


class Measuring:
    """Of one driver: it knows how long publishing has taken since the commit before."""

    def __init__(self, program: Program) -> None:
        self._plan = {n.name: (kind_of(n), program.level(n.name)) for n in program.nodes.values()}
        self._published: Counter[str] = Counter()

    def published(self, outputs: Sequence[str], ms: float) -> None:
        """Publishing at these outputs, as one, has taken so long."""
        self._published.update({name: ms / len(outputs) for name in outputs})

    def after(self, before: Measures, total: Total, end: Offset, wall: int) -> Measures:
        """After an epoch that is committed at `wall`; what it measures of its records is by the
        epoch's clock, from which that is some time on."""
        since, published = wall - end.clock, self._published
        self._published = Counter()
        return Measures(
            plan=self._plan,
            tasks=total.tasks,
            took=before.took + max(0, since),
            retries=before.retries + total.retries,
            work=_sums(before.work, total.work),
            longest=_rounded(total.longest),
            published=_sums(before.published, published),
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
