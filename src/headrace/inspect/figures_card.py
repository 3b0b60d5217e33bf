"""The figures of a job as HTML, for notebooks: as text and small plots, without scripts.

Whatever is text in it is escaped. Colours are those of the text around it, so that it can be read
in light and in dark; a plan, which has colours of its own, lies on white.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from headrace.inspect.figure_words import account, number, plotted, seconds, share
from headrace.inspect.recent import PAST
from headrace.inspect.sparklines import as_svg
from headrace.notebook import grid, note
from headrace.printed import text_of

_TILES = "display: flex; flex-wrap: wrap; gap: 0.4em 1.6em; margin: 0.4em 0"
_SMALL = "font-size: 85%; opacity: 0.7"
_WARNED = "border-left: 3px solid #c77700; padding-left: 0.5em; margin: 0.2em 0"
_PICTURE = "background: #fff; max-width: 100%; padding: 0.3em"


def figures_html(
    figures: Mapping[str, Any],
    times: Sequence[int] = (),
    series: Mapping[str, Sequence[float | None]] | None = None,
) -> str:
    """What matters most with its last minutes, where records went, what limits the job."""
    tiles = "".join(_tile(*one, times, series or {}) for one in plotted(figures))
    html = f"<div style='{_TILES}'>{tiles}</div>" + note(account(figures))
    if (slow := figures.get("bottleneck")) is not None:
        html += warning_html(f"bottleneck {slow['step']}: {slow['why']}")
    return html


def steps_html(figures: Mapping[str, Any]) -> str:
    """Its steps, folded."""
    heads = [("step", "kind"), ("in/s",), ("out/s",), ("busy",), ("state", "rows"), ("late",),
             ("dead",)]  # fmt: skip
    rows = [
        (
            text_of(s["name"]), number(s.get("rate_in")), number(s.get("rate_out")),
            share(s.get("busy")), number(s.get("state_rows")), number(s.get("late")),
            number(s.get("dead")),
        )
        for s in figures.get("steps") or ()
    ]  # fmt: skip
    return folded("steps", grid(heads, rows, [False, *[True] * 6])) if rows else ""


def jobs_html(rows: Sequence[Mapping[str, Any]]) -> str:
    """Jobs in a table: their lines as a server sends them."""
    heads = [("job",), ("state",), ("rows/s",), ("lag",), ("watermark",), ("at work",), ("dead",),
             ("",)]  # fmt: skip
    cells = [
        (
            text_of(job["name"]), str(job["state"]), number(job.get("rate_in")),
            number(job.get("lag_rows")), seconds(job.get("watermark_delay"), "-"),
            share(job.get("capacity")), number(job.get("dead")),
            text_of(_said(job)),
        )
        for job in rows
    ]  # fmt: skip
    return grid(heads, cells, [False, False, *[True] * 5, False])


def _said(job: Mapping[str, Any]) -> str:
    """Why it is what it is, or the first warning: what is so, without what can be done."""
    said = next(filter(None, (job.get("reason"), *job.get("warnings", ()))), "")
    return str(said).partition("\n")[0]


def plan_html(svg: str) -> str:
    """The picture of a plan, folded. As an image: nothing in it can do anything here."""
    source = "data:image/svg+xml;base64," + b64encode(svg.encode()).decode()
    return folded("plan", f"<img style='{_PICTURE}' alt='plan' src='{source}'>")


def folded(title: str, html: str) -> str:
    return f"<details><summary>{escape(title)}</summary>{html}</details>"


def warnings_html(texts: Iterable[str]) -> str:
    return "".join(warning_html(text) for text in texts)


def warning_html(text: str) -> str:
    return f"<div style='{_WARNED}'>{escape(text)}</div>"


def _tile(
    title: str,
    value: str,
    name: str,
    times: Sequence[int],
    series: Mapping[str, Sequence[float | None]],
) -> str:
    values = series.get(name, ())
    plot = as_svg(times, values, PAST) if len(times) == len(values) > 1 else ""
    return (
        f"<div><div style='{_SMALL}'>{escape(title)}</div><b>{escape(value)}</b>"
        f"<div style='opacity: 0.8'>{plot}</div></div>"
    )
