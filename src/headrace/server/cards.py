"""A server and its jobs as a notebook shows them, as they are at that moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

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
from headrace.notebook import heading, note, preformatted
from headrace.plan.picture import svg_of
from headrace.server.values import JobDetails, JobView, Series


def server_html(url: str, jobs: Sequence[JobView]) -> str:
    """Its jobs in a table."""
    shown = jobs_html([job.json for job in jobs]) if jobs else note("no job yet")
    return heading("server", url) + shown


def job_html(details: JobDetails, series: Series, plan: Mapping[str, Any] | None) -> str:
    """One job: its state, its figures and its plan."""
    job, now, figures = details.job, SystemClock().now(), details.figures
    said = f"{job.state} for {span(max(0, now - job.since))}, version {job.version}"
    if job.epoch and job.committed is not None:
        said += f", epoch {job.epoch} committed {span(max(0, now - job.committed))} ago"
    html = heading(job.name, said) + (preformatted(job.reason) if job.reason else "")
    if figures is not None:
        html += figures_html(figures, series.times, series.series)
    html += warnings_html(job.warnings)
    html += steps_html(figures) if figures is not None else ""
    return html + (_plan(plan) if plan is not None else "")


def gone_html(name: str, url: str, error: HeadraceError) -> str:
    """What cannot be asked for, and why."""
    return heading(name, f"on the server at {url}") + warning_html(str(error))


def _plan(plan: Mapping[str, Any]) -> str:
    try:
        return plan_html(svg_of(plan))
    except (LookupError, TypeError, ValueError):  # of another version, perhaps
        return ""
