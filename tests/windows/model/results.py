"""What: which rows of a window are seen, and what is made of them."""

from __future__ import annotations

from typing import Any

from tests.windows.model.records import Now, Program, Row, Window

Rows = list[Row]


def keep_rows(rows: Rows, count: int) -> Rows:
    return rows[-count:]


def keep_time(rows: Rows, length: int) -> Rows:
    return [r for r in rows if r.time > rows[-1].time - length]


def keep_near(rows: Rows, threshold: int) -> Rows:
    last = rows[-1].value
    return [r for r in rows if r.value is None or last is None or abs(r.value - last) < threshold]


def keep_even(rows: Rows) -> Rows:
    return [r for r in rows if r.value is not None and r.value % 2 == 0]


EVICTORS: dict[str, Any] = {
    made.__name__: made for made in (keep_rows, keep_time, keep_near, keep_even)
}


def seen(program: Program, window: Window) -> Rows:
    """The rows that the function is given: with `after`, all new ones, whatever is evicted."""
    rows = window.new() if program.mode == "delta" else window.ordered()
    if program.evict is None:
        return rows
    name, *args = program.evict
    judged = [r for r in rows if r in window.shown] if program.after else rows
    kept = EVICTORS[name](judged, *args) if judged else []
    return [r for r in rows if r in kept or r not in judged]


# window functions: result rows, each a tuple of values


def agg(rows: Rows, now: Now, bounds: Any) -> list[Any]:
    values = [r.value for r in rows if r.value is not None]
    first, last = (values[0], values[-1]) if values else (None, None)
    low, high = min(values, default=None), max(values, default=None)
    return [(len(rows), sum(values) if values else None, low, high, first, last, values)]


def count(rows: Rows, now: Now, bounds: Any) -> list[Any]:
    return [agg(rows, now, bounds)[0][:2]]


def as_they_came(rows: Rows, now: Now) -> Rows:
    """What is folded is folded epoch after epoch, the rows of one by their place."""
    return sorted(rows, key=lambda r: (now.window.rows[r].epoch, r.place))


def reduce(rows: Rows, now: Now, bounds: Any) -> list[Any]:
    """The first row, with the sum of all and the number of the last."""
    rows = as_they_came(rows, now)
    total = rows[0].value if len(rows) == 1 else sum(r.value or 0 for r in rows)
    return [(total, rows[0].time, rows[0].gap, rows[-1].number)]


def fold(rows: Rows, now: Now, bounds: Any) -> list[Any]:
    return [("".join(f"{r.value}," for r in as_they_came(rows, now)),)]


def process(rows: Rows, now: Now, bounds: Any) -> list[Any]:
    """A row for each two rows, so that there may be none."""
    call = (*bounds, now.window.panes, now.timing, now.expires, now.clock)
    return [([r.time for r in rows], *call, i) for i in range(len(rows) // 2)]


def summary(rows: Rows, now: Now, bounds: Any) -> list[Any]:
    """Aggregates and what the window says of itself, if there are two rows or more."""
    n, total, *_, values = agg(rows, now, bounds)[0]
    call = (*bounds, now.window.panes, now.timing, now.expires, now.clock)
    return [(n, total, values, *call)] if n > 1 else []


FUNCTIONS: dict[str, Any] = {
    made.__name__: made for made in (agg, count, reduce, fold, process, summary)
}


def compute(function: str, rows: Rows, now: Now, bounds: Any) -> list[Any]:
    return list(FUNCTIONS[function](rows, now, bounds)) if rows else []
