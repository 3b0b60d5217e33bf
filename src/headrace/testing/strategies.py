"""Hypothesis strategies for tests of streaming programs: rows, streams and whole scripts.

What is drawn is honest unless asked otherwise: no row is later than `within` allows, and
scripts only say of time what is true of the rows still to come. So a right program gives in
the end what it would give for all rows at once, however a script cuts, splits, crashes or
restarts it. Needs Hypothesis, the extra `testing`; nothing else in the package imports this.
"""

from __future__ import annotations

import dataclasses
import difflib
import typing
from collections.abc import Mapping
from types import NoneType
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError
from headrace.schema import SchemaLike, schema_of
from headrace.testing.column_values import st, time_value, values
from headrace.testing.script import Time, moment
from headrace.testing.steps import (
    Advance,
    Crash,
    End,
    Idle,
    Restart,
    Send,
    Step,
    Watermark,
    play,
)

__all__ = ["play", "rows", "scripts", "streams"]

Row = dict[str, Any]
Rows = st.SearchStrategy[list[Row]]
Steps = st.SearchStrategy[Step]
Draw = st.DrawFn
_SECOND = 1_000
_SIZES = st.sampled_from([5, 1, 2, 3])  # the simplest makes few steps
_RARELY = st.sampled_from([False, False, True])


def rows(schema: SchemaLike, /, **columns: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    """Rows of a schema, as dicts; `columns` are strategies for columns by their names.

    A column may be None, unless it is "not null" or, in a dataclass, its type has no None.
    """
    fields = _fields(schema)
    for name in columns.keys() - fields.keys():
        close = difflib.get_close_matches(name, fields, 1)
        raise PlanError(
            "HR-TEST-015",
            f"there is no column {name!r} to draw",
            f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(fields)}.",
        )
    drawn = {n: columns[n] if n in columns else values(f) for n, f in fields.items()}
    return st.fixed_dictionaries(drawn)


def _fields(schema: SchemaLike) -> dict[str, pa.Field]:
    """The fields by name; one that a dataclass declares without None is never null."""
    fields = {f.name: f for f in schema_of(schema)}
    if isinstance(schema, type) and dataclasses.is_dataclass(schema):
        hints = typing.get_type_hints(schema)
        never = [n for n in fields if NoneType not in typing.get_args(hints[n])]
        fields |= {n: fields[n].with_nullable(False) for n in never}
    return fields


def streams(
    schema: SchemaLike,
    /,
    *,
    time: str,
    within: Duration = 0,
    late: Duration = 0,
    step: Duration = "5s",
    start: Time = 0,
    min_size: int = 0,
    max_size: int = 30,
    **columns: st.SearchStrategy[Any],
) -> Rows:
    """Rows in the order in which they come; their times, in the column `time`, are not.

    A row is older than the newest before it by at most `within`, the delay to read them
    with. With `late`, some are older than that, by as much again. The newest time begins at
    `start` and moves by at most `step` a row, often not at all; no row is before `start`.
    """
    field, first, delay = _time_field(schema, time), moment(start), millis(within)
    plain_rows = rows(schema, **{**columns, time: st.none()})
    ages = _spans(delay)
    if millis(late):
        ages |= st.integers(1, millis(late)).map(lambda more: delay + more)

    def timed(drawn: list[tuple[Row, int, int]]) -> list[Row]:
        newest, stamped = first, []
        for row, move, age in drawn:
            newest += move
            stamped.append({**row, time: time_value(max(first, newest - age), field)})
        return stamped

    each = st.tuples(plain_rows, _spans(millis(step)), ages)
    few = st.lists(each, min_size=min_size, max_size=max_size)
    many = st.lists(each, min_size=max(min_size, max_size // 2), max_size=max_size)
    return (few | many).map(timed)  # alone, a list is mostly too short to pass a window's end


def _time_field(schema: SchemaLike, time: str) -> pa.Field:
    fields = _fields(schema)
    if time not in fields:
        raise PlanError(
            "HR-TEST-016",
            f"there is no column {time!r} to be the time",
            f"Known: {', '.join(fields)}.",
        )
    time_value(0, fields[time])  # refuses a type that is no time
    return fields[time]


def _spans(most: int) -> st.SearchStrategy[int]:
    """From 0 to `most`: often none, whole seconds, or all of it, where windows have edges."""
    seconds = st.integers(0, most // _SECOND).map(lambda n: n * _SECOND)
    return st.sampled_from([0, most]) | seconds | st.integers(0, most)


@st.composite
def scripts(
    draw: Draw,
    inputs: Mapping[str, Rows],
    /,
    *,
    time: str | Mapping[str, str] | None = None,
    splits: int = 2,
    advance: Duration = "5s",
    crashes: bool = True,
    end: bool = True,
) -> list[Step]:
    """Steps for `play`: the rows of each input, in small batches, over up to so many `splits`.

    Between them time passes (no more than `advance` in all: less than the job's `idle`), the
    job crashes and is started again, splits that are done fall silent and, if `time` names
    the time column (of each input, or of all), inputs say how far they are.
    """
    sends = _merged(draw, [_cut(draw, n, draw(drawn), splits) for n, drawn in inputs.items()])
    columns = time if isinstance(time, Mapping) else dict.fromkeys(inputs, time)
    left, steps = millis(advance), list[Step]()
    for place in range(len(sends) + 1):
        may = _time_steps(sends[:place], sends[place:], columns)
        may += [st.builds(Crash), st.builds(Restart)] if crashes else []
        between, passed = draw(_between(may, left))
        left -= passed
        steps += [*between, *sends[place : place + 1]]
    return [*steps, End()] if end else steps


def _cut(draw: Draw, name: str, stream: list[Row], splits: int) -> list[Send]:
    sends, at = [], 0
    last = draw(st.integers(0, splits - 1))  # often one split: two hold back each other's time
    while at < len(stream):
        size = draw(_SIZES)
        split = draw(st.integers(0, last))
        sends.append(Send(name, stream[at : at + size], split=split))
        at += size
    return sends


def _merged(draw: Draw, queues: list[list[Send]]) -> list[Send]:
    """All in one order, in which each queue keeps its own."""
    sends, queues = [], [q for q in queues if q]
    while queues:
        queue = draw(st.sampled_from(queues)) if len(queues) > 1 else queues[0]
        sends.append(queue[0])
        queues = [rest for q in queues if (rest := q[1:] if q is queue else q)]
    return sends


@st.composite
def _between(draw: Draw, may: list[Steps], left: int) -> tuple[list[Step], int]:
    """Up to two steps, mostly none, and how long they take: no more than `left`."""
    some = st.lists(st.one_of(may), max_size=2) if may else st.just(list[Step]())
    steps = draw(some) if draw(_RARELY) else []
    passed = draw(_spans(left)) if draw(_RARELY) else 0
    if passed:
        text = f"{passed}ms" if passed % _SECOND else f"{passed // _SECOND}s"
        steps.insert(draw(st.integers(0, len(steps))), Advance(text))
    return steps, passed


def _time_steps(
    sent: list[Send], coming: list[Send], columns: Mapping[str, str | None]
) -> list[Steps]:
    """Idle splits and watermarks that may come here without making another row late."""
    quiet = [Idle(name, split) for name, split in _finished_splits(sent, coming)]
    steps: list[Steps] = [st.sampled_from(quiet)] if quiet else []
    for name, column in columns.items():
        times = [moment(r[column]) for s in coming if s.input == name for r in s.rows if column]
        if times:
            steps.append(_watermarks(name, min(times)))
    return steps


def _watermarks(name: str, most: int) -> Steps:
    return _spans(5 * _SECOND).map(lambda less: Watermark(name, most - less))


def _finished_splits(sent: list[Send], coming: list[Send]) -> list[tuple[str, int]]:
    """Splits that have no more to send, of inputs where another one has, or none has.

    Were all that have begun silent, the input would count as silent, and its time as reached.
    """
    begun = dict.fromkeys((s.input, s.split) for s in sent)
    goes_on = {(s.input, s.split) for s in coming}
    waiting = {name for name, _ in goes_on}
    active = {name for name, split in begun if (name, split) in goes_on}
    return [b for b in begun if b not in goes_on and (b[0] in active or b[0] not in waiting)]
