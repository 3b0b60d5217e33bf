"""What limits a job: the step, the input or the output that is at work most, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headrace.epoch.bundle import DEAD
from headrace.inspect.figure_values import Bottleneck, InputFigures, OutputFigures

_FULL = 0.8  # the share of time at work from which on a job has no room left
_TELLING = 0.1  # a smaller share of the time explains nothing
_SKEWED = 1.5  # times as long as its tasks are at work on average, one of them is


@dataclass(frozen=True, slots=True)
class AtWork:
    """Who is at work in the tasks of a job, by step."""

    busy: Mapping[str, float]  # the share of all tasks' time
    longest: Mapping[str, float]  # of the last epoch's time, in the task that took longest
    tasks: int


def bottleneck_of(
    lag: int,
    capacity: float | None,
    inputs: Sequence[InputFigures],
    work: AtWork,
    outputs: Sequence[OutputFigures],
) -> Bottleneck | None:
    """None while nothing waits and the job has time to spare, or if too little is known."""
    if capacity is None or (capacity < _FULL and not lag):
        return None
    published = {o.name: o.busy for o in outputs if o.busy is not None}
    processing = max(0.0, capacity - sum(published.values()))
    alone = {name: work.longest.get(name, 0.0) * processing for name in work.busy}
    step, most = _most({name: max(busy, alone[name]) for name, busy in work.busy.items()})
    output, publishing = _most(published)
    waiting = f", and {lag:,} rows wait" if lag else ""
    whole = f"the job is at work {capacity:.0%} of the time{waiting}"
    if max(most, publishing) < _TELLING:
        return None
    rest = processing * max(0.0, 1 - sum(work.longest.values())) if work.longest else 0.0
    is_most = rest > max(most, publishing)
    own = f"; but Spark itself, or waiting for processors, takes {rest:.0%}" if is_most else ""
    if publishing > most:
        why = f"{whole}: publishing to it takes {publishing:.0%}, longer than any step{own}"
        return Bottleneck(output, why)
    reads = step in {i.name for i in inputs}
    what = "reading it" if reads else "writing dead letters" if step == DEAD else "this step"
    busy = work.busy[step]
    if work.tasks == 1:
        whom = "its task"
    elif most > busy * _SKEWED:
        whom, busy = f"one of {work.tasks} tasks", most
    else:
        whom = f"{work.tasks} tasks"
    why = f"{whole}: {what} keeps {whom} busy for {busy:.0%}, more than any other step{own}"
    return Bottleneck(step, why)


def _most(shares: Mapping[str, float]) -> tuple[str, float]:
    name = max(shares, key=lambda n: shares[n], default="")
    return name, shares.get(name, 0.0)
