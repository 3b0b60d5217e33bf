"""`make logstress`: kills, errors and a full disk for some minutes, then damage and power cuts.

Ends by writing what it found to docs/evidence; exits with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.evidence import record

from stress.damage import damage
from stress.journal import Tally
from stress.kills import kills
from stress.power import power

DISK = "64m"


@contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A folder that is a small disk of its own, where that is allowed, and whether it is."""
    with tempfile.TemporaryDirectory() as name:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", name]
        done = os.geteuid() == 0 and subprocess.run(command, check=False).returncode == 0
        try:
            yield Path(name), done
        finally:
            if done:
                subprocess.run(["umount", "-l", name], check=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--minutes", type=float, default=6.0)
    options.add_argument("--appenders", type=int, default=8)
    options.add_argument("--seed", type=int, default=1)
    asked = options.parse_args()
    total, rounds = Tally(), max(1, round(asked.minutes * 2))
    for number in range(rounds):
        with small_disk() as (folder, disk), tempfile.TemporaryDirectory() as notes:
            found = kills(
                folder, Path(notes), asked.minutes * 60 / rounds, asked.appenders,
                asked.seed + number, disk=disk,
            )  # fmt: skip
        _say(f"kills, errors{', full disk' if disk else ''} {number + 1}/{rounds}", found)
        total += found
    for check, amount in ((damage, 6), (power, 500)):
        with tempfile.TemporaryDirectory() as name:
            found = check(Path(name), amount, asked.seed)
        _say(check.__name__, found)
        total += found
    record(
        "log", "the embedded log: kills, errors, full disk, damage, power cuts", "make logstress",
        faults=total.faults, records=total.records, violations=len(total.violations),
    )  # fmt: skip
    return 1 if total.violations else 0


def _say(what: str, found: Tally) -> None:
    wrong = len(found.violations)
    print(f"{what}: {found.faults:,} faults, {found.records:,} records, {wrong} violations")
    for violation in found.violations[:20]:
        print(f"  {violation}")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
