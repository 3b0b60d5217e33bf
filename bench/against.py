"""This tree against another checkout of Headrace: did a change make anything slower or larger?

Each run of ours is made twice, one right after the other, the order changing from run to run;
no other engine runs, since it would be the same in both. Results must be equal. A ratio is
taken within a pair, and the median over the pairs counts; its spread is shown beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.batches import lasted, with_rows
from bench.jobs import NAMES
from bench.measure import OURS, Digester, Lab, Sample, TooSlow, check_equal

COMPARED = tuple(
    name for name in NAMES if name not in ("j", "q", "x")
)  # these measure in their own way
HERE, THERE = "this", "other"
SKIP = 4  # the first batch of so many is warming up, and one at least


@dataclass
class SideBySide(Lab):
    """Runs ours here and in the other tree; what asks for another engine gets ours again."""

    other: Path = field(default_factory=Path)
    pairs_by_case: dict[str, list[tuple[Sample, Sample]]] = field(default_factory=dict)

    def __init__(self, other: Path, quick: bool = False, reps: int | None = None) -> None:
        super().__init__(quick=quick, reps=reps, say=lambda line: print(line, flush=True))
        self.other = other.resolve()
        self.pairs_by_case = {}
        if not (self.other / ".venv" / "bin" / "python").exists():
            raise SystemExit(f"{other} has no .venv: run one of its verbs first, say make check")

    def one(
        self, case: str, job: str, who: str, params: Mapping[str, Any],
        digest: Digester | None = None, limit: float | None = None,
    ) -> Sample:  # fmt: skip
        if who != OURS:
            return self._last(case)
        pairs = self.pairs_by_case.setdefault(case, [])
        given = (case, job, OURS, params, digest, limit)
        python = str(self.other / ".venv" / "bin" / "python")
        if len(pairs) % 2:
            there = self._measure(*given, tree=self.other, python=python, name=THERE)
            here = self._measure(*given, name=HERE)
        else:
            here = self._measure(*given, name=HERE)
            there = self._measure(*given, tree=self.other, python=python, name=THERE)
        check_equal(case, [here, there])
        pairs.append((here, there))
        return here

    def _last(self, case: str) -> Sample:
        """Ours once more in place of another engine, where it ran just before."""
        if case not in self.pairs_by_case:
            raise TooSlow(f"{case}: another engine only, nothing to compare")
        return self.pairs_by_case[case][-1][0]

    def show(self) -> None:
        title = f"this tree against {self.other.name}: ratios of this to the other, median of pairs"
        table = Table(title=title, title_justify="left")
        for heading in ("case", "pairs", "batch", "time", "from", "to", "memory"):
            table.add_column(heading, justify="left" if heading == "case" else "right")
        for case, pairs in self.pairs_by_case.items():
            times = sorted(_ratios(pairs, _time))
            memory = median(_ratios(pairs, lambda sample: float(sample.pss)))
            table.add_row(
                case, str(len(pairs)), f"{median(_time(a) for a, _ in pairs):,.0f} ms",
                f"{median(times):.2f}", f"{times[0]:.2f}", f"{times[-1]:.2f}", f"{memory:.2f}",
            )  # fmt: skip
        Console(width=100).print(table)


def _ratios(pairs: list[tuple[Sample, Sample]], figure: Callable[[Sample], float]) -> list[float]:
    return [figure(here) / figure(there) for here, there in pairs]


def _time(sample: Sample) -> float:
    """The median time of a batch, in ms, without those that warm up."""
    batches = with_rows(dict(sample.figures))
    return lasted(batches, max(1, len(batches) // SKIP))
