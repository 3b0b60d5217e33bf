"""A server and its jobs as a notebook shows them, as they are at that moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headrace.clock import SystemClock
from headrace.errors import HeadraceError
from headrace.inspect.figures_card import (
    figures_html,
    jobs_html,
    plan_html,
    steps_html,
    warning_html,
    warnings_html,
)
from headrace.inspect.progress import span
from headrace.inspect.recent import PAST, SERIES
from headrace.notebook import heading, note, preformatted
from headrace.plan.picture import svg_of
from headrace.server.values import JobDetails, JobView, Series

_POINTS = 150  # of a plot


class Served(Protocol):
    """A server that can be asked for its jobs."""

    @property
    def url(self) -> str: ...
    def jobs(self) -> Sequence[JobView]: ...


class JobAsked(Protocol):
    """A job that its server can be asked for."""

    name: str

    @property
    def server(self) -> str: ...
    def details(self) -> JobDetails: ...
    def series(self, *names: str, since: int, points: int) -> Series: ...
    def plan(self) -> Mapping[str, Any]: ...


def server_html(server: Served) -> str:
    """Its jobs in a table; if it does not answer, why."""
    try:
        jobs = server.jobs()
    except HeadraceError as error:
        return heading("jobs", f"on the server at {server.url}") + warning_html(str(error))
    shown = jobs_html([job.json for job in jobs]) if jobs else note("no job yet")
    return heading("jobs", f"on the server at {server.url}") + shown


def job_html(asked: JobAsked) -> str:
    """One job: its state, its figures and its plan; if it cannot be asked for, why."""
    now = SystemClock().now()
    try:
        details = asked.details()
        series = asked.series(*SERIES, since=now - PAST, points=_POINTS)
    except HeadraceError as error:
        return heading(asked.name, f"on the server at {asked.server}") + warning_html(str(error))
    job, figures = details.job, details.figures
    said = f"{job.state} for {span(max(0, now - job.since))}, version {job.version}"
    if job.epoch and job.committed is not None:
        said += f", epoch {job.epoch} committed {span(max(0, now - job.committed))} ago"
    html = heading(job.name, said) + (preformatted(job.reason) if job.reason else "")
    if figures is not None:
        html += figures_html(figures, series.times, series.series)
    html += warnings_html(job.warnings)
    html += steps_html(figures) if figures is not None else ""
    return html + _plan(asked)


def _plan(asked: JobAsked) -> str:
    try:
        return plan_html(svg_of(asked.plan()))
    except (HeadraceError, LookupError, TypeError, ValueError):
        return ""  # its program is gone, or it is of another version
