"""What a server says of its jobs, as values; `.json` is what the REST interface sends.

Times are milliseconds since 1970. Nothing here reads anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.server.lifecycle import State, Verb

Figures = Mapping[str, Any]  # everything of one job at one time: plain JSON


@dataclass(frozen=True, slots=True)
class JobView:
    """A job in a line of the list."""

    name: str
    state: State
    reason: str | None  # why it is in this state, if there is something to say
    version: int
    program: str  # the user's own path
    folder: str  # the job's: state, manifests
    master: str | None
    parallelism: int | None
    pid: int | None
    since: int  # it is in this state
    restarts: int  # by the server, since it was activated
    epoch: int  # the last that was committed; 0: none
    committed: int | None
    rate_in: float | None
    lag_rows: int | None
    lag_seconds: float | None
    watermark: int | None
    watermark_delay: float | None
    latency_p95: float | None
    late: int | None
    dead: int | None
    capacity: float | None
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        return {**asdict(self), "state": str(self.state), "warnings": list(self.warnings)}


@dataclass(frozen=True, slots=True)
class Version:
    """A program as it was submitted."""

    version: int
    program: str
    submitted: int
    by: str
    digest: str
    note: str | None = None
    current: bool = False
    outcome: str = "submitted"  # "on trial", "in place", "replaced", "rolled back", "refused"

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class JobDetails:
    """A job, whole."""

    job: JobView
    figures: Figures | None
    options: Mapping[str, Any]
    versions: tuple[Version, ...]
    verbs: tuple[Verb, ...]

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        return {
            **self.job.json,
            "figures": self.figures,
            "options": dict(self.options),
            "versions": [one.json for one in self.versions],
            "verbs": [str(verb) for verb in self.verbs],
        }


@dataclass(frozen=True, slots=True)
class UpgradePlan:
    """What an upgrade would do, or why it is refused; nothing was changed."""

    job: str
    version: int  # that it would get
    refused: bool
    text: str  # what happens to state, inputs and outputs, or the error
    code: str | None = None  # of the error

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job, or to the server (`job` is None)."""

    id: int
    time: int
    job: str | None
    kind: str  # "submitted", "started", "running", "committed", "failed", "restarting", ...
    text: str
    by: str  # "server", "owner" or who the REST interface says it is

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Series:
    """Figures over time; None where a figure was not there."""

    times: tuple[int, ...]
    series: Mapping[str, tuple[float | None, ...]]

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        named = {name: list(values) for name, values in self.series.items()}
        return {"times": list(self.times), "series": named}


@dataclass(frozen=True, slots=True)
class LogPart:
    """Lines of what a run has printed; `next` is where to read on."""

    run: int
    runs: tuple[int, ...]
    lines: tuple[str, ...]
    next: int

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        return {
            "run": self.run, "runs": list(self.runs), "lines": list(self.lines), "next": self.next,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server: its version, its folder, where programs may be, how many jobs it has."""

    version: str
    started: int
    home: str
    programs: tuple[str, ...]  # folders that programs may be in
    jobs: Mapping[str, int] = field(default_factory=dict)  # by state

    @property
    def json(self) -> dict[str, Any]:
        """As the REST interface sends it."""
        facts = asdict(self)
        return {**facts, "programs": list(self.programs), "jobs": dict(self.jobs)}
