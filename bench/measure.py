"""The laboratory: contenders run in turn, each in a fresh process, and are compared in pairs.

A pair is one run of each, one right after the other, the order changing from pair to pair; a
ratio is taken within a pair, and the median over the pairs counts. Whatever the figures, a
pair whose results differ stops the benchmark.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from bench.data import CACHE, ROOT
from bench.digest import Digest
from bench.memory import watching

OURS, THEIRS = "ours", "theirs"
Digester = Callable[[Mapping[str, Any], Path], Digest]
Figure = Callable[["Sample"], float]


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one contender."""

    who: str
    figures: Mapping[str, Any]
    digest: Digest | None
    rss: int
    pss: int
    load: float  # one-minute load average when it began
    others: float  # cores that other processes kept busy meanwhile
    parts: list[tuple[str, int]] = field(default_factory=list)  # MB by process at the peak

    def to_json(self) -> dict[str, Any]:
        result = self.digest.to_json() if self.digest else None
        return {
            "who": self.who, "digest": result, "rss": self.rss, "pss": self.pss,
            "load": self.load, "others": round(self.others, 2), "parts": self.parts,
            "figures": dict(self.figures),
        }  # fmt: skip


class Failed(RuntimeError):
    """A contender failed, or two disagree: there is nothing to compare."""


@dataclass
class Lab:
    """Runs contenders and keeps what they said."""

    quick: bool = False
    reps: int | None = None  # pairs of each case, whatever the job thinks
    cores: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    say: Callable[[str], None] = print
    samples: dict[str, list[Sample]] = field(default_factory=dict)

    def pairs_of(self, wanted: int) -> int:
        """How many pairs to run where a job wants so many."""
        return self.reps or (1 if self.quick else wanted)

    def one(
        self, case: str, job: str, who: str, params: Mapping[str, Any],
        digest: Digester | None = None,
    ) -> Sample:  # fmt: skip
        """Run one contender once."""
        place = CACHE / "work" / uuid.uuid4().hex[:12]
        place.mkdir(parents=True)
        (place / "params.json").write_text(json.dumps({**params, "cores": self.cores}))
        load = os.getloadavg()[0]
        began = time.monotonic()
        try:
            with (place / "log.txt").open("wb") as log:
                child = subprocess.Popen(
                    [sys.executable, "-m", "bench.child", who, job, str(place)],
                    cwd=ROOT, env=environment(), stdout=log, stderr=subprocess.STDOUT,
                )  # fmt: skip
                with watching(child.pid) as watch:
                    code = child.wait()
            if code:
                raise Failed(f"{case}: {who} failed\n{_tail(place / 'log.txt')}")
            figures = json.loads((place / "figures.json").read_text())
            result = digest(params, place) if digest else None
        finally:
            shutil.rmtree(place, ignore_errors=True)
        sample = Sample(who, figures, result, watch.rss, watch.pss, load, watch.others, watch.parts)
        self.samples.setdefault(case, []).append(sample)
        self.say(f"  {case:<14} {who:<7} {time.monotonic() - began:6.1f} s   load {load:.1f}")
        return sample

    def pairs(
        self, case: str, job: str, params: Mapping[str, Any], digest: Digester, reps: int
    ) -> Contest:
        """Run both contenders `reps` times in turn, and check that they agree."""
        found = []
        for rep in range(self.pairs_of(reps)):
            order = (OURS, THEIRS) if rep % 2 == 0 else (THEIRS, OURS)
            pair = {who: self.one(case, job, who, params, digest) for who in order}
            if pair[OURS].digest != pair[THEIRS].digest:
                raise Failed(
                    f"{case}: the results differ: ours {pair[OURS].digest}, "
                    f"theirs {pair[THEIRS].digest}"
                )
            found.append((pair[OURS], pair[THEIRS]))
        return Contest(found)


@dataclass(frozen=True, slots=True)
class Contest:
    pairs: list[tuple[Sample, Sample]]

    def ratio(self, figure: Figure) -> float:
        """Ours to theirs: the median of the ratios within pairs."""
        return float(median(figure(a) / figure(b) for a, b in self.pairs))

    def ours(self, figure: Figure) -> float:
        return float(median(figure(a) for a, _ in self.pairs))

    def theirs(self, figure: Figure) -> float:
        return float(median(figure(b) for _, b in self.pairs))


def environment() -> dict[str, str]:
    """What a contender sees: this package and the source tree, whatever is installed."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(ROOT / "src"), str(ROOT), *known]
    joined = os.pathsep.join(dict.fromkeys(p for p in paths if p))
    return {**os.environ, "PYTHONPATH": joined}


def _tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
