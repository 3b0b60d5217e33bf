"""`headrace top` on a terminal: a frame that fits, from what was seen.

No line reaches the last column, where some terminals begin a new one. What is too wide goes column
by column, the least important first; what is too high is counted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from headrace.cli.top_jobs import TopJob, TopSeen
from headrace.files import size
from headrace.inspect.figure_words import NONE, account, ms, number, plotted, seconds, share
from headrace.inspect.progress import span
from headrace.inspect.recent import PAST
from headrace.inspect.sparklines import as_text
from headrace.printed import text_of

_STYLES = {
    "running": "green", "failed": "bold red", "killed": "red", "unreadable": "bold red",
    "waiting": "yellow", "starting": "cyan", "stopping": "cyan", "draining": "cyan",
}  # fmt: skip
_STATES = ("failed", "unreadable", "waiting", "killed", "starting", "stopping", "draining")
_GAP = 2
_NARROWEST = 8  # of a name
_PLOT = 30  # columns of a sparkline at most
_FEW = 3  # rows of a table that are shown however low the terminal is


@dataclass(frozen=True)
class TopColumn:
    """`order` is how important it is, 0 the most; `sort` is what the table is sorted by."""

    title: str
    cell: Callable[[Any], str]
    order: int
    sort: Callable[[Any], Any] = id
    left: bool = False
    style: Callable[[Any], str] | None = None


def _rank(job: TopJob) -> int:
    return _STATES.index(job.state) if job.state in _STATES else len(_STATES)


COLUMNS = (
    TopColumn("job", lambda j: text_of(j.name), 0, lambda j: j.name, left=True),
    TopColumn("state", lambda j: j.state, 1, _rank, True, lambda j: _STYLES.get(j.state, "")),
    TopColumn("rows/s", lambda j: number(j.rate_in), 2, lambda j: -(j.rate_in or 0)),
    TopColumn("lag", lambda j: number(j.lag_rows), 3, lambda j: -(j.lag_rows or 0)),
    TopColumn("p95", lambda j: ms(j.latency_p95), 4, lambda j: -(j.latency_p95 or 0)),
    TopColumn("watermark", lambda j: seconds(j.watermark_delay, "-"), 6,
           lambda j: -(j.watermark_delay or 0)),
    TopColumn("at work", lambda j: share(j.capacity), 7, lambda j: -(j.capacity or 0)),
    TopColumn("late", lambda j: number(j.late), 8, lambda j: -(j.late or 0)),
    TopColumn("dead", lambda j: number(j.dead), 5, lambda j: -(j.dead or 0),
           style=lambda j: "red" if j.dead else ""),
    TopColumn("epoch", lambda j: f"{j.epoch:,}" if j.epoch else NONE, 9, lambda j: -j.epoch),
)  # fmt: skip
_TROUBLES = ("failed", "waiting", "killed", "unreadable")
SORTS = tuple(column.title for column in COLUMNS)


def list_frame(
    seen: TopSeen,
    width: int,
    height: int | None = None,
    sort: str = "job",
    reverse: bool = False,
    keys: bool = False,
) -> Group:
    """All jobs; `height` None: however many lines that takes."""
    wide = max(20, width - 1)
    by = next(column for column in COLUMNS if column.title == sort)
    jobs = sorted(sorted(seen.jobs, key=lambda j: j.name), key=by.sort, reverse=reverse)
    notes = _notes(jobs, wide, None if height is None else max(1, height // 4))
    fixed = 3 + len(notes) + (seen.trouble is not None) + (2 if keys else 0)
    room = None if height is None else max(2, height - fixed)
    parts: list[Any] = [_heading(jobs, wide)]
    parts += _trouble(seen, wide)
    if jobs:
        parts.append(_fitted(COLUMNS, jobs, wide, room, sort))
    else:
        parts.append(_line("there are no jobs", wide, "dim"))
    parts += [Text(""), *notes] if notes else []
    if keys:
        order = f"{sort}, the other way round" if reverse else sort
        parts += [Text(""), _line(f"q quit  s sort ({order})  r reverse", wide, "dim")]
    return Group(*parts)


def job_frame(seen: TopSeen, width: int, height: int | None = None, keys: bool = False) -> Group:
    """One job, with all that is known of it."""
    wide = max(20, width - 1)
    job, figures = seen.jobs[0], seen.figures
    name = _line(text_of(job.name), wide // 2, "bold")
    state = (job.state, _STYLES.get(job.state, ""))
    head = Text.assemble(name, "  ", state, _since(seen, job))
    head.truncate(wide, overflow="ellipsis")
    most = None if height is None else max(1, height // 5)
    parts: list[Any] = [head, *_trouble(seen, wide)]
    parts += _first([_wrapped(text_of(job.reason), "red", wide)] if job.reason else [], most)
    if figures is None:
        parts.append(_line("no batch has been committed yet", wide, "dim"))
    else:
        parts += [Text(""), _plots(seen, figures, wide)]
        parts += [_line(account(figures), wide)]
        if (slow := figures.get("bottleneck")) is not None:
            said = f"bottleneck {text_of(slow['step'])}: {text_of(slow['why'])}"
            parts += _first([_wrapped(said, "yellow", wide)], most)
    warnings = [_wrapped(f"! {text_of(text)}", "yellow", wide) for text in job.warnings]
    parts += _first(warnings, most)
    if figures is not None:
        used = sum(_lines_of(part) for part in parts) + (2 if keys else 0)
        parts += _tables(figures, wide, None if height is None else height - used)
    if keys:
        parts += [Text(""), _line("q quit", wide, "dim")]
    return Group(*parts)


# parts of a frame


def _heading(jobs: Sequence[TopJob], wide: int) -> Text:
    states = [job.state for job in jobs]
    counts = ", ".join(f"{states.count(one)} {one}" for one in dict.fromkeys(sorted(states)))
    heading = f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}"
    return _line(f"{heading}: {counts}" if jobs else heading, wide, "bold")


def _trouble(seen: TopSeen, wide: int) -> list[Text]:
    return [] if seen.trouble is None else [_line(text_of(seen.trouble), wide, "bold red")]


def _notes(jobs: Sequence[TopJob], wide: int, most: int | None) -> list[Text]:
    """Why jobs have failed, and what is wrong with those that run: a line each, or whole where
    there is room for all."""
    said = [f"{j.name}: {j.reason}" for j in jobs if j.reason and j.state in _TROUBLES]
    said += [f"{j.name}: {text}" for j in jobs for text in j.warnings]
    note = _wrapped if most is None else lambda text, style, wide: _line(text, wide, style)
    lines = [note(f"! {text_of(text)}", "yellow", wide) for text in said]
    if most is not None and len(lines) > most:
        more = len(lines) - most + 1
        lines = [*lines[: most - 1], _line(f"  and {more} more warnings", wide, "dim")]
    return lines


def _fitted(
    columns: Sequence[TopColumn], rows: Sequence[Any], wide: int, most: int | None, sort: str = ""
) -> Table:
    """As many columns as fit, and as many rows; the first column gives way, to a point."""
    shown = rows if most is None or len(rows) <= most else rows[: most - 1]
    cells = {c.title: [c.cell(row) for row in shown] for c in columns}
    widths = {title: max(map(len, [title, *texts])) for title, texts in cells.items()}
    first, *rest = columns
    kept, room = [first], wide - min(widths[first.title], _NARROWEST)
    for column in sorted(rest, key=lambda c: c.order):
        if room < (needed := widths[column.title] + _GAP):
            break  # nothing less important in its place
        room -= needed
        kept.append(column)
    kept = [column for column in columns if column in kept]
    others = sum(widths[c.title] + _GAP for c in kept[1:])
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    for column in kept:
        width = min(widths[column.title], wide - others) if column is first else None
        table.add_column(
            width=width, no_wrap=True, overflow="ellipsis",
            justify="left" if column.left else "right",
        )  # fmt: skip
    table.add_row(*(Text(c.title, "bold underline" if c.title == sort else "bold") for c in kept))
    for i, row in enumerate(shown):
        styles = [c.style(row) if c.style else "" for c in kept]
        table.add_row(*(Text(cells[c.title][i], s) for c, s in zip(kept, styles, strict=True)))
    if len(shown) < len(rows):
        table.add_row(Text(f"+{len(rows) - len(shown)}", "dim"))
    return table


def _plots(seen: TopSeen, figures: Mapping[str, Any], wide: int) -> Table:
    """The figures that matter, and how they were in the last minutes."""
    table = Table.grid(padding=(0, _GAP, 0, 0), pad_edge=False)
    rows = list(plotted(figures))
    value = max(len(text) for _, text, _ in rows)
    label = min(max(len(title) for title, _, _ in rows), max(4, wide - value - _GAP))
    plot = min(_PLOT, wide - label - value - 2 * _GAP)
    for width, side in ((label, "left"), (value, "right"), *([(plot, "left")] * (plot > 3))):
        table.add_column(width=width, no_wrap=True, overflow="ellipsis", justify=side)  # type: ignore[arg-type]
    for title, text, name in rows:
        values = seen.series.get(name, [None] * len(seen.times))
        drawn = as_text(seen.times, values, plot, PAST) if plot > 3 else ""
        table.add_row(title, text, *([Text(drawn, "cyan")] if plot > 3 else []))
    return table


_INPUTS = (
    TopColumn("input", lambda i: text_of(i["name"]), 0, left=True),
    TopColumn("rows/s", lambda i: number(i.get("rate")), 1),
    TopColumn("lag", lambda i: number(i.get("lag_rows")), 2),
    TopColumn("read", lambda i: number(i.get("read")), 3),
    TopColumn("late", lambda i: number(i.get("late")), 4),
    TopColumn("dead", lambda i: number(i.get("dead")), 5),
)
_STEPS = (
    TopColumn("step", lambda s: text_of(s["name"]), 0, left=True),
    TopColumn("kind", lambda s: text_of(s.get("kind") or ""), 7, left=True),
    TopColumn("in/s", lambda s: number(s.get("rate_in")), 1),
    TopColumn("out/s", lambda s: number(s.get("rate_out")), 2),
    TopColumn("busy", lambda s: share(s.get("busy")), 3),
    TopColumn("state", lambda s: number(s.get("state_rows")), 4),
    TopColumn(
        "bytes", lambda s: NONE if s.get("state_bytes") is None else size(s["state_bytes"]), 8
    ),
    TopColumn("late", lambda s: number(s.get("late")), 5),
    TopColumn("dead", lambda s: number(s.get("dead")), 6),
)
_OUTPUTS = (
    TopColumn("output", lambda o: text_of(o["name"]), 0, left=True),
    TopColumn("rows/s", lambda o: number(o.get("rate")), 1),
    TopColumn("rows", lambda o: number(o.get("rows")), 2),
)


def _tables(figures: Mapping[str, Any], wide: int, room: int | None) -> list[Any]:
    """Inputs, steps and outputs in `room` lines; of too many steps those that work most."""
    kinds = {"inputs": _INPUTS, "steps": _STEPS, "outputs": _OUTPUTS}
    rows = {kind: list(figures.get(kind) or ()) for kind in kinds}
    most: dict[str, int] = {}
    for kind in ("steps", "inputs", "outputs"):  # the most important first
        few = min(_FEW, len(rows[kind]))
        if few and (room is None or few + 2 <= room):
            most[kind] = few if room is not None else len(rows[kind])
            room = None if room is None else room - few - 2
    for kind in most:
        more = min(len(rows[kind]) - most[kind], room or 0)
        most[kind] += more
        room = None if room is None else room - more
    if len(rows["steps"]) > most.get("steps", 0):
        rows["steps"].sort(key=lambda s: -(s.get("busy") or 0))
    parts: list[Any] = []
    for kind in (kind for kind in kinds if kind in most):
        parts += [Text(""), _fitted(kinds[kind], rows[kind], wide, most[kind])]
    return parts


def _since(seen: TopSeen, job: TopJob) -> str:
    if not job.epoch or job.committed is None:
        return ""
    return f"  epoch {job.epoch:,}, committed {span(max(0, seen.time - job.committed))} ago"


def _line(text: str, wide: int, style: str = "") -> Text:
    line = Text(text, style, no_wrap=True)
    line.truncate(wide, overflow="ellipsis")
    return line


def _wrapped(text: str, style: str, wide: int) -> Text:
    """Over as many lines as it takes, none wider than that."""
    lines = Text(text, style).wrap(Console(width=wide), wide)
    return Text("\n", style).join(lines)


def _first(texts: Sequence[Text], most: int | None) -> list[Text]:
    """Their first lines."""
    return [line for text in texts for line in text.split("\n")][:most]


def _lines_of(part: Any) -> int:
    return part.plain.count("\n") + 1 if isinstance(part, Text) else part.row_count
