"""What windows that rows end cannot have; each message says why, and what can be used instead."""

from __future__ import annotations

from headrace.api.window_cut import Cut
from headrace.clock import pretty
from headrace.errors import PlanError
from headrace.ops.window.by_rows import LastRows
from headrace.ops.window.evictors import KeepTime
from headrace.plan.nodes import Edge


def check_rows(edge: Edge, cut: Cut) -> None:
    """Refuse what has no meaning where rows end windows."""
    if not cut.by_rows:
        return
    window = cut.window
    _check_time(cut)
    if isinstance(window, LastRows):
        _check_ticks(cut, window)
    if cut.mode == "delta" and not window.tumbles:
        raise PlanError(
            "HR-WINDOW-062",
            f'mode="delta" has no meaning for {window}: rows leave such a window between two '
            "firings, so results of its new rows alone do not add up to anything",
            'Use mode="replace" or "retract", or a window that tumbles: hr.tumbling(rows=...).',
        )
    if not edge.node.timed and not cut.clocked:
        _check_untimed(cut)


def _check_time(cut: Cut) -> None:
    for name, is_there in (("lateness", cut.lateness), ("result_time", cut.result_time != "end")):
        if is_there:
            raise PlanError(
                "HR-WINDOW-037",
                f"{name}= has no meaning for {cut.window}, which its rows close",
                f"Leave {name}= out, or use a window of time.",
            )


def _check_ticks(cut: Cut, window: LastRows) -> None:
    options = {
        "trigger=": not cut.windowing().fires_once,
        "evict=": cut.evictor is not None,
        "mode=": cut.mode != "replace",
    }
    for name, is_there in options.items():
        if is_there:
            raise _ticking(window, name)


def check_stored(cut: Cut, fn: object) -> None:
    """Refuse a function that stores values where the watermark decides when it is called."""
    if isinstance(cut.window, LastRows):
        raise _ticking(cut.window, f"a function that stores values, as {type(fn).__name__} does")


def _ticking(window: LastRows, what: str) -> PlanError:
    every, rows = pretty(window.every), window.rows
    return PlanError(
        "HR-WINDOW-063",
        f"{window} cannot have {what}: its rows count when the watermark passes a multiple of "
        f"{every}, and then it is over at once",
        f'Use hr.everything() with trigger=t.every("{every}", time="event") and '
        f"evict=hr.keep_last(rows={rows}), or hr.sliding(rows={rows}, every_rows=...).",
    )


def _check_untimed(cut: Cut) -> None:
    """Refuse what goes by event time where rows have none."""
    options = [(cut.trigger, cut.trigger.marked), (cut.evictor, isinstance(cut.evictor, KeepTime))]
    for what, timed in options:
        if timed:
            raise PlanError(
                "HR-WINDOW-064",
                f"({what}) goes by event time, which these rows do not have",
                'Say which column is the time when reading: read(..., time="at", delay="2s"); or '
                "go by rows: t.after_rows(...), hr.keep_last(rows=...).",
            )
