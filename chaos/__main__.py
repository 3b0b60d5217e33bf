"""`python -m chaos`: five kinds of program under drawn faults of every kind, judged from outside.

Without arguments: all programs, without Spark's JVM and then on Spark. Each prints a line: seed,
faults by kind, records, violations, worst recovery; `--program`, `--seed`, `--faults` play one
again, with the same rows and faults, though not to the microsecond. Exits with 1 if anything was
wrong. What runs of full length found is written to docs/evidence.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from chaos.kinds import drawn
from chaos.programs import PROGRAMS
from chaos.world import Broken, World, small_disk

FAULTS, ON_SPARK = 200, 30  # for each program
PROGRESS, RETOLD = 25, 20  # faults between two lines; violations that are printed


@dataclass
class Found:
    faults: Counter[str] = field(default_factory=Counter)
    records: int = 0
    malformed: int = 0
    looks: int = 0
    violations: list[str] = field(default_factory=list)
    recoveries: list[float] = field(default_factory=list)

    def __iadd__(self, other: Found) -> Found:
        self.faults += other.faults
        self.records += other.records
        self.malformed += other.malformed
        self.looks += other.looks
        self.violations += other.violations
        self.recoveries += other.recoveries
        return self

    def kinds(self) -> str:
        return ", ".join(f"{n} {kind}" for kind, n in sorted(self.faults.items()))

    def __str__(self) -> str:
        return (
            f"{self.faults.total():,} faults ({self.kinds()}), {self.records:,} records, "
            f"{self.malformed} malformed, {self.looks:,} looks, {len(self.violations)} violations, "
            f"worst recovery {max(self.recoveries, default=0):.1f} s"
        )


def played(program: str, seed: int, faults: int, *, spark: bool = False) -> Found:
    """One program, and so many faults."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        place = Path(name)
        with small_disk(place / "work") as disk:
            world = World(program, seed, place, spark=spark, disk=disk)
            try:
                while world.total < faults:
                    before = world.total // PROGRESS
                    drawn(world)(world)
                    if world.total // PROGRESS > before:
                        print(f"  {program}: {world.total} of {faults}", flush=True)
                    if world.verifier.violations:
                        break  # the first says most
                else:
                    world.finish()
            except Broken:
                pass
            finally:
                world.close()
    verifier = world.verifier
    malformed = len(world.feed.sent.malformed)
    return Found(
        world.faults, verifier.records, malformed, verifier.looks, verifier.violations,
        world.recoveries,
    )  # fmt: skip


def main(words: list[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--program", choices=[*PROGRAMS], action="append")
    options.add_argument("--faults", type=int, help=f"for each; {FAULTS}, on Spark {ON_SPARK}")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--where", choices=["local", "spark", "both"], default="both")
    asked = options.parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # with what was mounted and started
    wrong = 0
    for spark in {"local": [False], "spark": [True], "both": [False, True]}[asked.where]:
        where, total = "on Spark" if spark else "without the JVM", Found()
        for program in asked.program or PROGRAMS:
            faults = asked.faults or (ON_SPARK if spark else FAULTS)
            found = played(program, asked.seed, faults, spark=spark)
            print(f"chaos {where}: seed {asked.seed}, {program}: {found}", flush=True)
            for violation in found.violations[:RETOLD]:
                print(f"  {violation}", flush=True)
            if asked.faults is None:
                _record(program, where, found)
            total += found
        print(f"chaos {where}, all: {total}", flush=True)
        wrong += len(total.violations)
    return 1 if wrong else 0


def _record(program: str, where: str, found: Found) -> None:
    """One row of the table for each program, here and there."""
    from tools.evidence import record

    what = (PROGRAMS[program].__doc__ or "").split("\n")[0].rstrip(".")
    record(
        f"chaos-{program}-{where.split()[-1].lower()}",
        f"random faults {where}. {what}: {found.kinds()}", "make chaos",
        faults=found.faults.total(), records=found.records, violations=len(found.violations),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
