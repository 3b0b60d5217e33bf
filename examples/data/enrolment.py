"""Packets of residents who enrol, and requests to confirm who they are:
python -m examples.data.enrolment

`measured` compares what a run did with the parameters of the program: the latency of a task is
in what the job writes, the selectivity of an edge in the run's own counts of each step.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from examples.data.playing import SEED, disorder, fill, line

import headrace as hr
from headrace.inspect.progress import Progress

PACKETS, REQUESTS = 300, 600
SECONDS = 300


def packets(kind: str, total: int) -> Iterator[bytes]:
    rng = random.Random(f"{SEED} {kind}")
    sent = []
    for number in range(total):
        second = rng.uniform(0, SECONDS)
        sent.append((second, line(second, id=f"{kind}{number:05}")))
    yield from disorder(rng, sent)


def topics() -> dict[str, Iterator[bytes]]:
    return {"packets": packets("p", PACKETS), "requests": packets("r", REQUESTS)}


@dataclass(frozen=True)
class Measured:
    packets: int
    latency: float  # ms, on average
    passes: float  # share that left by the edge P


def measured(steps: Mapping[str, Mapping[str, int]]) -> dict[str, Measured]:
    """By task; one without edges lets everything pass."""
    spent, count = defaultdict[str, float](float), defaultdict[str, int](int)
    for row in hr.read_output(".headrace/aadhaar/latency").to_pylist():
        spent[row["task"]] += row["ms"] * row["n"]
        count[row["task"]] += row["n"]
    found = {}
    for task, n in count.items():
        passed = steps.get(f"{task}.P")
        share = 1.0 if passed is None else passed["out"] / passed["in"]
        found[task] = Measured(n, spent[task] / n, share)
    return found


def report(progress: Progress) -> None:
    from examples.enrolment import SIMULATED

    found = measured(progress.steps)
    print("                 latency, ms    share by edge P   share by edge F")
    print("task     packets  set measured    set   measured    set   measured")
    for name, (latency, passes) in SIMULATED.items():
        task = found[name]
        times = f"{latency:>4} {task.latency:>8.2f}"
        edges = (f"{share:>6.3f} {seen:>10.3f}" for share, seen in
                 ((passes, task.passes), (1 - passes, 1 - task.passes)))  # fmt: skip
        print(f"{name:<12} {task.packets:>5} {times} {' '.join(edges)}")
    wrote = (progress.outputs[f"{n}.write"] for n in ("numbers", "rejections", "answers"))
    print("\n{:,} numbers issued, {:,} rejections, {:,} answers".format(*wrote))


if __name__ == "__main__":
    fill(topics())
