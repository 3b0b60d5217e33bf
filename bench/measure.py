"""The laboratory: contenders run in turn, each in a fresh process, and are compared in pairs.

A round is one run of each, one right after the other, the order changing from round to round;
with two contenders it is a pair. A ratio is taken within a pair, and the median over the pairs
counts. Whatever the figures, a round whose results differ stops the benchmark.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil

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


class TooSlow(Failed):
    """A contender did not finish in the time it was given."""


@dataclass(frozen=True, slots=True)
class Entry:
    """What takes part in a round: a contender of a job, what it is to do, and its name."""

    case: str
    who: str
    params: Mapping[str, Any]


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
        digest: Digester | None = None, limit: float | None = None,
    ) -> Sample:  # fmt: skip
        """Run one contender once, for `limit` seconds at most."""
        return self._measure(case, job, who, params, digest, limit)

    def _measure(
        self, case: str, job: str, who: str, params: Mapping[str, Any], digest: Digester | None,
        limit: float | None, tree: Path = ROOT, python: str = sys.executable, name: str = "",
    ) -> Sample:  # fmt: skip
        """The same in any source tree and Python; the sample has the contender's name or `name`."""
        place = CACHE / "work" / uuid.uuid4().hex[:12]
        place.mkdir(parents=True)
        (place / "params.json").write_text(json.dumps({**params, "cores": self.cores}))
        load = os.getloadavg()[0]
        began = time.monotonic()
        try:
            with (place / "log.txt").open("wb") as log:
                child = subprocess.Popen(
                    [python, "-m", "bench.child", who, job, str(place)],
                    cwd=tree, env=environment(tree), stdout=log, stderr=subprocess.STDOUT,
                )  # fmt: skip
                with watching(child.pid) as watch:
                    code = _ended(child, limit)
            if code is None:
                raise TooSlow(f"{case}: {who} did not finish in {limit:g} s")
            if code:
                raise Failed(f"{case}: {who} failed\n{_tail(place / 'log.txt')}")
            figures = json.loads((place / "figures.json").read_text())
            result = digest(params, place) if digest else None
        finally:
            shutil.rmtree(place, ignore_errors=True)
        name = name or who
        sample = Sample(
            name, figures, result, watch.rss, watch.pss, load, watch.others, watch.parts
        )
        self.samples.setdefault(case, []).append(sample)
        self.say(f"  {case:<14} {name:<7} {time.monotonic() - began:6.1f} s   load {load:.1f}")
        return sample

    def rounds(
        self, job: str, entries: Sequence[Entry], digest: Digester, reps: int
    ) -> list[list[Sample]]:
        """Run all of them `reps` times in turn; what each round measured, in their order."""
        found = []
        for rep in range(self.pairs_of(reps)):
            turn = 1 if rep % 2 == 0 else -1
            ran = [self.one(e.case, job, e.who, e.params, digest) for e in entries[::turn]]
            found.append(ran[::turn])
        return found

    def pairs(
        self, case: str, job: str, params: Mapping[str, Any], digest: Digester, reps: int
    ) -> Contest:
        """Run both contenders `reps` times in turn, and check that they agree."""
        return self.contests(case, job, params, digest, reps, (THEIRS,))[0]

    def contests(
        self, case: str, job: str, params: Mapping[str, Any], digest: Digester, reps: int,
        others: Sequence[str],
    ) -> list[Contest]:  # fmt: skip
        """Run ours and all others in turn, check that they agree; ours against each other."""
        entries = [Entry(case, who, params) for who in (OURS, *others)]
        found = self.rounds(job, entries, digest, reps)
        for ran in found:
            check_equal(case, ran)
        return [Contest([(ran[0], ran[i]) for ran in found]) for i in range(1, len(entries))]


def check_equal(case: str, ran: Sequence[Sample]) -> None:
    if any(sample.digest != ran[0].digest for sample in ran):
        said = ", ".join(f"{sample.who} {sample.digest}" for sample in ran)
        raise Failed(f"{case}: the results differ: {said}")


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


def environment(tree: Path = ROOT) -> dict[str, str]:
    """What a contender sees: this package and the source tree, whatever is installed."""
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = [str(tree / "src"), str(tree), *known]
    joined = os.pathsep.join(dict.fromkeys(p for p in paths if p))
    return {**os.environ, "PYTHONPATH": joined}


def _ended(child: subprocess.Popen[bytes], limit: float | None) -> int | None:
    """The exit code; None if the time was over, and then none of its processes is left."""
    try:
        return child.wait(limit)
    except subprocess.TimeoutExpired:
        tree = [psutil.Process(child.pid), *psutil.Process(child.pid).children(recursive=True)]
        for process in tree:
            with contextlib.suppress(psutil.Error):
                process.kill()
        child.wait()
        return None


def _tail(log: Path, lines: int = 40) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
