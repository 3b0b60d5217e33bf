"""What a server remembers of a job: one frozen value, stored as JSON.

It says what is wanted and how far that is, so that a server that is started again goes on with it.
Keys that are not there get a default, and unknown ones are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from headrace.server.lifecycle import State

# What follows when the process that is stopping has ended.
STOP, START = "stop", "start"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """A version that takes the place of another, and has not proved itself yet."""

    version: int
    before: int  # the version to go back to
    state: State  # of the job when it was asked for
    phase: str  # "ready", "trial": the new version is in place; "back": the old one comes back
    drop: tuple[str, ...] = ()
    savepoint: str | None = None  # made when nothing ran
    epoch: int = 0  # the newest when it was made
    why: str = ""  # it goes back

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> Upgrade:
        known = {f.name: facts[f.name] for f in fields(Upgrade) if f.name in facts}
        drop, state = tuple(known.pop("drop", ())), State(known.pop("state"))
        return Upgrade(**known, drop=drop, state=state)


READY, TRIAL, BACK = "ready", "trial", "back"


@dataclass(frozen=True, slots=True)
class JobRecord:
    name: str
    program: str  # the user's own path
    folder: str  # the job's
    since: int
    chosen: str | None = None  # --job, if the program makes several
    state: State = State.INACTIVE
    reason: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    run: int = 0  # the number of the last run; 0: there was none
    launched: bool = False  # the run is to have a process
    begun: int = 0  # the run
    asked: bool = False  # the process has been asked to stop
    then: str = STOP  # what follows
    draining: bool = False  # also when it is started again
    failures: int = 0  # in a row, without a new batch
    restarts: int = 0  # since it was activated
    retry_at: int = 0
    epoch: int = 0  # the newest that was seen
    upgrade: Upgrade | None = None

    @property
    def json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(facts: Mapping[str, Any]) -> JobRecord:
        known = {f.name: facts[f.name] for f in fields(JobRecord) if f.name in facts}
        upgrade = known.get("upgrade")
        known["state"] = State(known.get("state", State.INACTIVE))
        known["upgrade"] = None if upgrade is None else Upgrade.from_json(upgrade)
        return JobRecord(**known)
