"""What a job guarantees if it is killed: as a whole, and each of its inputs and outputs, and why.

Every input and output says for itself what it offers. The whole is the weakest of them: an input
that may lose rows loses them for the job, and an output that may repeat rows shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

EXACTLY_ONCE = "exactly once"
AT_LEAST_ONCE = "at least once"
AT_MOST_ONCE = "at most once"
NOT_GUARANTEED = "not guaranteed"
NOT_KNOWN = "not known"  # it cannot be opened now

ASKED = (EXACTLY_ONCE, AT_LEAST_ONCE, AT_MOST_ONCE)  # what a job can be asked for

_REPEATS = (AT_LEAST_ONCE, NOT_GUARANTEED)
_LOSES = (AT_MOST_ONCE, NOT_GUARANTEED)


def spelled(guarantee: object) -> object:
    """A guarantee as it is written here, of "exactly_once" or "exactly once"."""
    return guarantee.replace("_", " ") if isinstance(guarantee, str) else guarantee


@dataclass(frozen=True, slots=True)
class Offer:
    """What an input or an output offers."""

    role: Literal["input", "output"]
    name: str
    guarantee: str  # one of the texts above
    why: str

    def __str__(self) -> str:
        return f"{self.role} {self.name}: {self.guarantee}: {self.why}"


@dataclass(frozen=True, slots=True)
class JobGuarantee:
    """What a job guarantees if it is killed: print it."""

    offers: tuple[Offer, ...]  # of the inputs, then of the outputs

    @property
    def whole(self) -> str:
        """The guarantee of the job: that of its weakest input or output."""
        if self._that((NOT_KNOWN,)):
            return NOT_KNOWN
        repeats, loses = self._that(_REPEATS), self._that(_LOSES)
        if repeats and loses:
            return NOT_GUARANTEED
        return AT_LEAST_ONCE if repeats else AT_MOST_ONCE if loses else EXACTLY_ONCE

    def misses(self, asked: str) -> bool:
        """Whether the job may do what `asked` rules out: lose rows, or repeat them."""
        loses, repeats = self._that(_LOSES), self._that(_REPEATS)
        return bool((loses and asked != AT_MOST_ONCE) or (repeats and asked != AT_LEAST_ONCE))

    @property
    def why(self) -> str:
        """Which inputs and outputs make it so."""
        if unknown := self._that((NOT_KNOWN,)):
            return f"{', '.join(unknown)} cannot be opened"
        weak = [
            f"{', '.join(names)} may {what} rows"
            for what, names in (("lose", self._that(_LOSES)), ("repeat", self._that(_REPEATS)))
            if names
        ]
        return " and ".join(weak) or "no input and no output may lose or repeat rows"

    def _that(self, guarantees: tuple[str, ...]) -> list[str]:
        return [f"{o.role} {o.name!r}" for o in self.offers if o.guarantee in guarantees]

    @property
    def lines(self) -> Iterator[str]:
        """The whole, then each input and output."""
        yield f"if it is killed: {self.whole}: {self.why}"
        yield from (f"  {offer}" for offer in self.offers)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def json(self) -> dict[str, Any]:
        """The same as plain values."""
        offers = [
            {"role": o.role, "name": o.name, "guarantee": o.guarantee, "why": o.why}
            for o in self.offers
        ]
        return {"whole": self.whole, "why": self.why, "offers": offers}
