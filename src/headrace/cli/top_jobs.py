"""What `headrace top` shows: jobs of a server, and of folders that it does not run.

The same values for both. A server that does not answer is asked again and again; meanwhile what it
said last is shown, and that it is so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headrace.cli.served import is_elsewhere
from headrace.errors import HeadraceError, ServerError
from headrace.inspect.figure_values import Figures
from headrace.inspect.recent import PAST, SERIES, Recent
from headrace.server.client import ServedJob, ServerConnection, connect_server
from headrace.server.values import JobView
from headrace.state.sealed import read_sealed

_AWAY = ("HR-SERVER-080", "HR-SERVER-083", "HR-SERVER-088")  # no server, or none any more
_POINTS = 150  # of a figure over time


@dataclass(frozen=True, slots=True)
class TopJob:
    """A job in a line."""

    name: str
    state: str
    reason: str | None = None
    server: str | None = None  # the one that runs it
    folder: str | None = None
    epoch: int = 0
    committed: int | None = None
    rate_in: float | None = None
    lag_rows: int | None = None
    lag_seconds: float | None = None
    latency_p95: float | None = None
    watermark_delay: float | None = None
    capacity: float | None = None
    late: int | None = None
    dead: int | None = None
    warnings: tuple[str, ...] = ()

    @property
    def json(self) -> dict[str, Any]:
        return {**asdict(self), "warnings": list(self.warnings)}


@dataclass(frozen=True, slots=True)
class TopSeen:
    """Jobs at a time, or one of them with all its figures."""

    time: int
    jobs: tuple[TopJob, ...] = ()
    trouble: str | None = None  # why this is not of now
    figures: Mapping[str, Any] | None = None
    times: Sequence[int] = ()
    series: Mapping[str, Sequence[float | None]] = field(default_factory=dict)

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = {"time": self.time, "trouble": self.trouble}
        return {**found, "jobs": [job.json for job in self.jobs]}

    @property
    def json_of_one(self) -> dict[str, Any]:
        job = self.jobs[0].json if self.jobs else None
        series = {"times": list(self.times), "series": {n: [*v] for n, v in self.series.items()}}
        return {"time": self.time, "job": job, "figures": self.figures, **series}


class Watched(Protocol):
    """What is looked at again and again."""

    def look(self, now: int) -> TopSeen: ...


class WatchedJobs:
    """Those of the server, if there is one, and those of the folder that it does not run."""

    def __init__(self, url: str | None, root: Path) -> None:
        self._url, self._root = url, root
        self._server: ServerConnection | None = None
        self._served: tuple[TopJob, ...] = ()
        self._paths = set[Path]()  # folders of the server's jobs
        self._folders: dict[Path, Recent] = {}
        if is_elsewhere(url):
            self._ask()  # one that was named must be there

    def look(self, now: int) -> TopSeen:
        trouble = None
        try:
            self._ask()
        except ServerError as error:
            if error.code not in _AWAY:
                raise
            self._server = None  # it may come back elsewhere, with another token
            if is_elsewhere(self._url) or self._served:
                trouble = f"{error.message}; shown is what it said last"
        here = () if is_elsewhere(self._url) else self._here(now)
        return TopSeen(now, (*self._served, *here), trouble)

    def _ask(self) -> None:
        if self._server is None:
            self._server = connect_server(self._url)
        views = self._server.jobs()
        self._paths = {Path(view.folder).resolve() for view in views}
        self._served = tuple(_of_view(view, self._server.url) for view in views)

    def _here(self, now: int) -> tuple[TopJob, ...]:
        paths = sorted(path.parent for path in self._root.glob("*/job.json"))
        there = [path for path in paths if path.resolve() not in self._paths]
        self._folders = {path: self._folders.get(path) or Recent(path) for path in there}
        return tuple(_of_folder(recent, now)[0] for recent in self._folders.values())


class WatchedFolder:
    """One job of this machine."""

    def __init__(self, folder: Path) -> None:
        self._recent = Recent(folder)

    def look(self, now: int) -> TopSeen:
        job, figures = _of_folder(self._recent, now)
        json = None if figures is None else figures.to_json()
        return TopSeen(now, (job,), None, json, self._recent.times(), self._recent.series())


class WatchedServed:
    """One job of a server."""

    def __init__(self, job: ServedJob, url: str | None) -> None:
        self._job, self._url = job, url
        self._seen = TopSeen(0)

    def look(self, now: int) -> TopSeen:
        try:
            if self._seen.trouble is not None:
                self._job = connect_server(self._url).job(self._job.name)
            self._seen = self._ask(now)
        except ServerError as error:
            if error.code not in _AWAY:
                raise
            old, trouble = self._seen, f"{error.message}; shown is what it said last"
            self._seen = TopSeen(now, old.jobs, trouble, old.figures, old.times, old.series)
        return self._seen

    def _ask(self, now: int) -> TopSeen:
        details = self._job.details()
        found = self._job.series(*SERIES, since=now - PAST, points=_POINTS)
        job = _of_view(details.job, self._job.server)
        return TopSeen(now, (job,), None, details.figures, found.times, found.series)


def _of_view(view: JobView, server: str) -> TopJob:
    return TopJob(
        name=view.name, state=str(view.state), reason=view.reason, server=server,
        folder=view.folder, epoch=view.epoch, committed=view.committed, rate_in=view.rate_in,
        lag_rows=view.lag_rows, lag_seconds=view.lag_seconds, latency_p95=view.latency_p95,
        watermark_delay=view.watermark_delay, capacity=view.capacity, late=view.late,
        dead=view.dead, warnings=view.warnings,
    )  # fmt: skip


def _of_folder(recent: Recent, now: int) -> tuple[TopJob, Figures | None]:
    log = recent.log
    folder = str(log.folder)
    try:
        name = read_sealed(log.folder / "job.json", "job")["job"]
        figures, is_held = recent.look(now), log.is_held()
        rest = "ended" if recent.ended else "stopped" if log.taken() else "new"
        state = "running" if is_held else rest
    except (HeadraceError, OSError) as error:
        said = str(error).splitlines()[0]
        return TopJob(log.folder.name, "unreadable", said, folder=folder), None
    if figures is None:
        return TopJob(name, state, folder=folder), None
    if not is_held:
        figures = figures.at_rest()
    f, latency = figures, figures.latency.get("event") or figures.latency.get("ingest")
    return TopJob(
        name=name, state=state, folder=folder, epoch=f.epoch, committed=f.committed,
        rate_in=f.rate_in, lag_rows=f.lag_rows, lag_seconds=f.lag_seconds,
        latency_p95=None if latency is None else latency["p95"],
        watermark_delay=f.watermark_delay, capacity=f.capacity,
        late=f.totals.get("late", 0), dead=f.totals.get("dead", 0), warnings=f.warnings,
    ), figures  # fmt: skip
