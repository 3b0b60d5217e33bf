"""`make evolution`: chains of changed programs with crashes between them, against a model.

Ends by writing what it found to docs/evidence; exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tools.evidence import record

from evolution.play import Result, play

ENOUGH = 2_000  # chains that are worth a line among the guarantees


def main() -> int:
    options = argparse.ArgumentParser(prog="python -m evolution", description=__doc__)
    options.add_argument("--chains", type=int, default=ENOUGH)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--processes", type=int, default=1)
    options.add_argument("--verbose", action="store_true")
    asked = options.parse_args()
    began, found = time.monotonic(), list[Result]()
    for one in _played(range(asked.seed, asked.seed + asked.chains), asked.processes):
        found.append(one)
        _say(one, asked.verbose)
        if len(found) % 100 == 0:
            print(f"{len(found):,} chains, {time.monotonic() - began:.0f} s", flush=True)
    total = summary(found)
    print(f"{asked.chains:,} chains, " + ", ".join(f"{n:,} {what}" for what, n in total.items())
          + f", {time.monotonic() - began:.0f} s")  # fmt: skip
    points = Counter(point for one in found for point in one.points)
    print("killed at", ", ".join(f"{point} {n}" for point, n in points.most_common()))
    kinds = sum((one.compared for one in found), Counter[str]())
    print(f"{kinds.total():,} steps compared, {sum(one.unclear for one in found):,} unclear:",
          ", ".join(f"{kind} {n}" for kind, n in kinds.most_common()))  # fmt: skip
    if asked.chains >= ENOUGH:
        record(
            "evolution", f"{asked.chains:,} chains of changed programs", "make evolution",
            faults=total["crashes"] + total["refused"], records=total["records"],
            violations=total["violations"],
        )  # fmt: skip
    return 1 if total["violations"] else 0


def _played(seeds: range, processes: int) -> Iterator[Result]:
    """Chain by chain in this process, or several at once, in the order of their seeds."""
    if processes == 1:
        yield from map(play, seeds)
        return
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        yield from pool.map(play, seeds)


def summary(found: list[Result]) -> Counter[str]:
    total = Counter[str]()
    for one in found:
        total.update(starts=one.starts, refused=one.refused, open=one.opened, crashes=one.crashes,
                     records=one.records, violations=len(one.violations))  # fmt: skip
    return total


def _say(one: Result, verbose: bool) -> None:
    if one.violations or verbose:
        print(f"seed {one.seed}")
        print("\n".join(f"    {line}" for line in one.history))
        print("\n".join(f"  VIOLATION {line}" for line in one.violations), flush=True)


if __name__ == "__main__":
    sys.exit(main())
