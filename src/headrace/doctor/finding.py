"""What was found: values, and how they are shown.

Damage is what somebody is refused because of, now or later; a note is about something that puts
itself in order, or only takes space. What `--repair` does is said before it is done, and only what
is provably right is ever offered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.files import size
from headrace.printed import counted

FROM_BACKUP = "put this file back from a backup"


@dataclass(frozen=True, slots=True)
class Finding:
    """One file, and what is wrong with it."""

    path: Path
    wrong: str
    means: str
    harm: bool = True  # somebody is refused, now or later
    starts: bool = True  # whether the job would start, and go on, all the same
    do: str = FROM_BACKUP  # what the user can do
    repair: str = ""  # what `--repair` does; "" if nothing is provably right
    mend: Callable[[], None] | None = field(default=None, compare=False)
    epochs: frozenset[int] = frozenset()  # from which the job cannot go on because of it
    savepoints: frozenset[str] = frozenset()  # that cannot be restored because of it

    @property
    def json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "file": str(self.path),
            "wrong": self.wrong,
            "means": self.means,
            "damage": self.harm,
            "starts": self.starts,
            "do": self.do,
            "repair": self.repair or None,
            "epochs": sorted(self.epochs),
            "savepoints": sorted(self.savepoints),
        }

    @property
    def lines(self) -> Iterator[str]:
        """The file, what is wrong with it, what that means and what can be done."""
        yield f"{'DAMAGED' if self.harm else 'harmless'} {self.path}"
        yield f"  {self.wrong}"
        yield f"  {self.means}"
        if self.harm and not self.starts:
            yield "  a start is refused, or stops when it comes to it"
        if self.repair:
            yield f"  --repair: it is {self.repair}"
        elif self.harm:
            yield f"  what can be done: {self.do}"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What was looked at, and everything that was found."""

    what: str  # what was looked at, in words
    files: int
    bytes: int
    findings: tuple[Finding, ...]
    advice: tuple[str, ...] = ()  # the way out, where files cannot be put back
    repaired: tuple[str, ...] = ()  # what `--repair` has done
    of_job: bool = True  # not of topics alone

    @property
    def damage(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.harm)

    @property
    def notes(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if not f.harm)

    @property
    def healthy(self) -> bool:
        return not self.damage

    @property
    def starts(self) -> bool:
        """Whether the job would start and go on as it is."""
        return all(f.starts for f in self.damage)

    @property
    def json(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "looked_at": self.what,
            "files": self.files,
            "bytes": self.bytes,
            "healthy": self.healthy,
            "starts": self.starts,
            "damage": [f.json for f in self.damage],
            "notes": [f.json for f in self.notes],
            "advice": list(self.advice),
            "repaired": list(self.repaired),
        }

    @property
    def lines(self) -> Iterator[str]:
        """Damage first, then notes, then the way out; the verdict last."""
        yield f"{self.what}: {counted(self.files, 'file')} read, {size(self.bytes)}"
        for done in self.repaired:
            yield f"repaired: {done}"
        for finding in (*self.damage, *self.notes):
            yield from finding.lines
        yield from self.advice
        yield self._verdict

    @property
    def _verdict(self) -> str:
        if self.healthy:
            return "healthy"
        what = f"damaged: {counted(len(self.damage), 'file')}"
        if not self.of_job:
            return what
        return f"{what}; the job {'starts all the same' if self.starts else 'does not start so'}"

    def __str__(self) -> str:
        return "\n".join(self.lines)


class Looked:
    """Counts the files that were read, and tells whoever waits."""

    def __init__(self, tell: Callable[[int, int], None] | None = None) -> None:
        self._tell, self._seen = tell, set[Path]()
        self.bytes = 0

    @property
    def files(self) -> int:
        return len(self._seen)

    def __call__(self, path: Path) -> None:
        if path in self._seen:
            return
        self._seen.add(path)
        if path.is_file():
            self.bytes += path.stat().st_size
        if self._tell is not None:
            self._tell(self.files, self.bytes)
