"""`make damage`: every kind of file of a whole job damaged, and what doctor says of each; two
drivers stopped at every point.

Ends by writing what it found to docs/evidence; exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
from tools.evidence import record

from damage import doctor, drivers, matrix
from damage.kinds import KINDS
from damage.world import small

COMMAND = "make damage"
PROGRESS = 100  # cases


def damaged(positions: int, per_kind: int, seed: int) -> matrix.Tally:
    tally = matrix.Tally()
    with small(), tempfile.TemporaryDirectory() as name:
        for moment in matrix.CRASHES:
            one = matrix.Moment(Path(name) / moment.replace(" ", "-"), moment)
            for case in one.cases(positions, per_kind, random.Random(seed)):
                matrix.judge(one, case, tally)
            one.close()
            _say(f"damage, {moment}", tally.cases, tally.violations)
    print(f"  {tally.unchanged} unchanged, {tally.refused} refused by name")
    print(f"  kinds that never were there: {sorted(KINDS.keys() - tally.kinds) or 'none'}")
    return tally


def examined(positions: int, per_kind: int, seed: int) -> matrix.Tally:
    """Doctor held against the job, in the same cases."""
    tally = matrix.Tally()
    with small(), tempfile.TemporaryDirectory() as name:
        for moment in matrix.CRASHES:
            one = matrix.Moment(Path(name) / moment.replace(" ", "-"), moment)
            doctor.judge_whole(one, tally)
            for case in one.cases(positions, per_kind, random.Random(seed)):
                doctor.judge_doctor(one, case, tally)
            one.close()
            _say(f"doctor, {moment}", tally.cases, tally.violations)
    print(f"  {tally.unchanged} unchanged, {tally.refused} refused and found")
    return tally


def two_drivers(every: int, processes: int) -> drivers.Found:
    """Every point, or each `every`-th, with the newer driver at rest and within a commit."""
    found = drivers.Found()
    with ProcessPoolExecutor(processes, get_context("spawn"), pa.set_cpu_count, (1,)) as pool:
        for scene in drivers.SCENES:
            passed = pool.submit(drivers.undisturbed, scene).result()
            cases = list(drivers.cases(scene, len(passed)))[::every]
            for number, one in enumerate(pool.map(drivers.judged, cases), 1):
                found.add(one)
                if number % PROGRESS == 0:
                    print(f"  {scene}: {number:,} of {len(cases):,}", flush=True)
            _say(f"drivers, {scene}", found.cases, found.violations)
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--positions", type=int, default=4, help="bits flipped in each file")
    options.add_argument("--per-kind", type=int, default=5, help="files of each kind")
    options.add_argument("--every", type=int, default=1, help="of the pairs of drivers")
    options.add_argument("--processes", type=int, default=1, help="for the pairs of drivers")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--only", choices=["damage", "doctor", "drivers"])
    asked = options.parse_args()
    pa.set_cpu_count(1)  # the tables are tiny
    wrong = 0
    if asked.only in (None, "damage"):
        tally = damaged(asked.positions, asked.per_kind, asked.seed)
        wrong += len(tally.violations)
        record(
            "damage", "whole jobs: every kind of file damaged, then run to the end", COMMAND,
            faults=tally.cases, records=tally.records, violations=len(tally.violations),
        )  # fmt: skip
    if asked.only in (None, "doctor"):
        tally = examined(asked.positions, asked.per_kind, asked.seed)
        wrong += len(tally.violations)
        record(
            "doctor", "whole jobs: `headrace doctor` of every kind of damaged file", COMMAND,
            faults=tally.cases, records=tally.records, violations=len(tally.violations),
        )  # fmt: skip
    if asked.only in (None, "drivers"):
        found = two_drivers(asked.every, asked.processes)
        wrong += len(found.violations)
        record(
            "drivers", "whole jobs: a driver stopped at every point, and let go after a takeover",
            COMMAND, faults=found.cases, records=found.records, violations=len(found.violations),
        )  # fmt: skip
    return 1 if wrong else 0


def _say(what: str, cases: int, violations: list[str]) -> None:
    print(f"{what}: {cases:,} cases so far, {len(violations)} violations")
    for violation in violations[:20]:
        print(f"  {violation}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
