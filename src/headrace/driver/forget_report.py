"""What was forgotten, where, and what was not: a value to print."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ErasedPlace:
    """A place from which rows or records of the key were erased."""

    what: str  # "step averages", "output files:out", "topic people"
    count: int
    unit: str = "rows"


@dataclass(frozen=True, slots=True)
class RemainingPlace:
    """A place of ours in which the value still occurs, and could not be erased."""

    where: str
    why: str
    count: int = 0


@dataclass(frozen=True, slots=True)
class OtherPlace:
    """A place that is not ours: what the user has to do there."""

    what: str
    place: str
    statement: str


@dataclass(slots=True)
class ForgetReport:
    """What `forget` has done, or would do: print it."""

    job: str
    key: str
    dry_run: bool = False
    erased: list[ErasedPlace] = field(default_factory=list)
    looked: dict[str, int] = field(default_factory=dict)  # files, by what they are
    remaining: list[RemainingPlace] = field(default_factory=list)
    others: list[OtherPlace] = field(default_factory=list)

    @property
    def count(self) -> int:
        """How many rows and records were erased."""
        return sum(one.count for one in self.erased)

    @property
    def gone(self) -> bool:
        """Whether the scan has found the value nowhere among what is ours."""
        return not self.remaining and not self.dry_run

    @property
    def json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "count": self.count, "gone": self.gone}

    @property
    def lines(self) -> Iterator[str]:
        """What was erased; what the scan looked at and found; what is left to others."""
        would = "would be erased" if self.dry_run else "are erased"
        yield f"job {self.job}, key {self.key}: {self.count:,} rows and records {would}"
        for one in self.erased:
            yield f"  {one.what}: {one.count:,} {one.unit}"
        if self.count == 0:
            yield "  nothing found"
        looked = ", ".join(f"{count:,} {what}" for what, count in self.looked.items())
        if not self.dry_run:
            yield f"scanned: {looked or 'nothing'}"
            for left in self.remaining:
                count = f"{left.count:,} times " if left.count else ""
                yield f"  still occurs {count}in {left.where}: {left.why}"
            if self.gone:
                yield "  the value occurs nowhere in them"
        if self.others:
            yield "not erased, because these are not the job's; there it is for you to do:"
            for other in self.others:
                yield f"  {other.what} ({other.place}): {other.statement}"

    def __str__(self) -> str:
        return "\n".join(self.lines)
