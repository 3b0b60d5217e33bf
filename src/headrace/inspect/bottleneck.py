"""What limits a job: the step, the input or the output that is at work most, in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.inspect.figure_values import (
    Bottleneck,
    InputFigures,
    OutputFigures,
    StepFigures,
)

_FULL = 0.8  # the share of time at work from which on a job has no room left
_TELLING = 0.1  # a smaller share of the time explains nothing


def bottleneck_of(
    lag: int,
    capacity: float | None,
    inputs: Sequence[InputFigures],
    steps: Sequence[StepFigures],
    outputs: Sequence[OutputFigures],
    tasks: int,
) -> Bottleneck | None:
    """None while nothing waits and the job has time to spare, or if too little is known."""
    if capacity is None or (capacity < _FULL and not lag):
        return None
    shares = {s.name: s.busy for s in steps if s.busy is not None}
    published = {o.name: o.busy for o in outputs if o.busy is not None}
    step, busy = _most(shares)
    output, publishing = _most(published)
    waiting = f", and {lag:,} rows wait" if lag else ""
    whole = f"the job is at work {capacity:.0%} of the time{waiting}"
    if max(busy, publishing) < _TELLING:
        return None
    rest = capacity - sum(shares.values()) - sum(published.values())
    is_most = rest > max(busy, publishing)
    own = f"; but Spark itself, or waiting for processors, takes {rest:.0%}" if is_most else ""
    if publishing > busy:
        why = f"{whole}: publishing to it takes {publishing:.0%}, longer than any step{own}"
        return Bottleneck(output, why)
    what = "reading it" if step in {i.name for i in inputs} else "this step"
    why = f"{whole}: {what} keeps {tasks} tasks busy for {busy:.0%}, more than any other step{own}"
    return Bottleneck(step, why if tasks != 1 else why.replace("1 tasks", "its task"))


def _most(shares: dict[str, float]) -> tuple[str, float]:
    name = max(shares, key=lambda n: shares[n], default="")
    return name, shares.get(name, 0.0)
