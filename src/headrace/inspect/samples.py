"""What a job had counted at a time: rates and shares are differences of two of these."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.epoch.bundle import DEAD
from headrace.errors import FencedError
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Counts, Manifest
from headrace.state.measures import Measures

MINUTE = 60_000  # ms over which percentiles are taken


@dataclass(frozen=True, slots=True)
class Sample:
    """What a job had counted at `time`."""

    time: int
    job: tuple[str, str]  # and its timeline: another begins anew
    epoch: int
    clock: int  # when the epoch was planned: until then, the one before was the last
    wall: int  # when it was committed
    counts: Counts
    steps: Counts
    rows: Mapping[str, int]
    measures: Measures


def sample_of(time: int, manifest: Manifest) -> Sample:
    """`time` is now, or when the manifest was committed."""
    m = manifest
    job = (m.job, m.timeline)
    return Sample(time, job, m.epoch, m.clock, m.wall, m.counts, m.steps, m.rows, m.measures)


def samples_before(log: EpochLog, newest: Manifest) -> list[Sample]:
    """What was counted in the minute before a manifest, and when that began, as far as earlier
    ones are there."""
    found: list[Sample] = []
    for epoch in reversed(log.epochs()):
        if epoch < newest.epoch:
            try:
                manifest = log.read(epoch)
            except FencedError:
                break  # a driver that runs has cleared it away
            if manifest.timeline != newest.timeline:
                break
            found.append(sample_of(manifest.wall, manifest))
            if manifest.wall < newest.wall - MINUTE:
                break
    return found[::-1]


def precedes(before: Sample, now: Sample) -> bool:
    """Whether it is the same job, that has gone on since: what it has counted has only grown."""
    if before.job != now.job or before.epoch > now.epoch or before.time > now.time:
        return False
    read = ((counts, now.counts.get(name)) for name, counts in before.counts.items())
    return before.measures.took <= now.measures.took and all(
        later is None or counts.get("read", 0) <= later.get("read", 0) for counts, later in read
    )


def knew(sample: Sample, name: str) -> bool:
    """Whether a part of the job had this name then: what had another one had not counted 0."""
    return name == DEAD or not sample.measures.plan or name in sample.measures.plan
