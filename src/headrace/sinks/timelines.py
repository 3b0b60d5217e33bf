"""Which epochs at an output are the job's own: those of the timelines its folder has come through.

Going back to an earlier epoch begins a new timeline; what the one before did after that epoch
is given up. Outputs record the timeline of what they hold, so whatever becomes of the job's
folder or of an output (restored from a copy, left out of the program for a while and put
back), what was given up is told from what counts, also where epochs have the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headrace.clock import MAX_TIME
from headrace.state.manifest import FIRST, Manifest

NEVER = -1  # before every epoch

Reached = dict[str, int]  # by timeline: the last epoch of it


@dataclass(frozen=True, slots=True)
class Timelines:
    """The timelines of a folder and the last epoch of each, the oldest first."""

    spans: tuple[tuple[str, int], ...]

    @staticmethod
    def of(manifest: Manifest, epoch: int | None = None) -> Timelines:
        """As a manifest has them; its own goes up to `epoch`, or to the manifest's."""
        last = manifest.epoch if epoch is None else epoch
        return Timelines((*manifest.forks, (manifest.timeline, last)))

    @property
    def newest(self) -> str:
        return self.spans[-1][0]

    def upto(self, timeline: str) -> int:
        """The last epoch of a timeline that counts."""
        return max((last for one, last in self.spans if one == timeline), default=NEVER)

    def at(self, epoch: int) -> str:
        """The timeline of an epoch that counts."""
        return next((one for one, last in self.spans if epoch <= last), self.newest)

    def plus(self, known: Mapping[str, int]) -> Timelines:
        """With what is known to be there besides, and cannot be taken back."""
        return Timelines((*known.items(), *self.spans))

    def beyond(self, held: Mapping[str, int]) -> Reached:
        """Of what is held somewhere, that which does not count."""
        return {one: last for one, last in held.items() if last > self.upto(one)}


ONLY = Timelines(((FIRST, MAX_TIME),))  # of a folder that has never gone back


@dataclass(frozen=True, slots=True)
class Held:
    """What the place of an output holds of a job."""

    number: int = 0  # the largest epoch that was ever used there
    own: Mapping[str, int] = field(default_factory=dict)  # by timeline: the last epoch with rows
    all: Mapping[str, int] = field(default_factory=dict)  # of all outputs the job has had there
    final: bool = False  # it cannot take anything back
