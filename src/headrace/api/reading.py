"""Where a program meets an input: its schema and its time.

The only module of `api` that looks at `sources`, and only for the schema of an input that
brings its own. A stream has event time when its input names the column; how late rows may
be must then be said, because a guess would lose rows silently.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError, Site
from headrace.expr.lower import unknown_column
from headrace.plan.draft import Draft
from headrace.schema import ddl_type
from headrace.sources import open_source


def source_schema(uri: Any, format: str | None, options: Mapping[str, Any]) -> pa.Schema:
    """The schema that the input itself has."""
    return open_source(uri, None, format, options).schema


def check_place(uri: object, method: str) -> None:
    """Refuse what is neither the text of a place nor (to be read) a source."""
    if isinstance(uri, str) or (method == "read" and hasattr(uri, "splits")):
        return
    known = f'"files:{uri}"' if hasattr(uri, "__fspath__") else '"log:topic" or "files:path"'
    raise PlanError(
        f"{method} needs a place, not {uri!r}", code="HR-PLAN-025", hint=f"Write {known}."
    )


@dataclass(frozen=True, slots=True)
class Timing:
    """What the user said about time."""

    time: str | None
    delay: Duration | None
    idle: Duration | None
    max_skew: Duration | None
    in_order: bool


def timing(draft: Draft, said: Timing, schema: pa.Schema, site: Site | None) -> dict[str, Any]:
    """Delay, idle and max_skew in milliseconds; what is wrong goes to the draft."""
    found: dict[str, int | None] = {"delay": None, "idle": None, "max_skew": None}
    for name in found:
        with draft.attempt(site):
            found[name] = _length(name, getattr(said, name))
    problem = _untimed(said) if said.time is None else _timed(said, found["delay"], schema)
    if problem is not None:
        draft.report(problem, site)
    return {**found, "delay": found["delay"] or 0}


def _length(name: str, duration: Duration | None) -> int | None:
    length = None if duration is None else millis(duration)
    if length is not None and (length < 0 or (length == 0 and name != "delay")):
        raise PlanError(
            f"{name} is {duration!r}", code="HR-TIME-005",
            hint=f'Give a duration above zero, as in {name}="10s".',
        )  # fmt: skip
    return length


def _untimed(said: Timing) -> PlanError | None:
    given = [n for n in ("delay", "idle", "max_skew") if getattr(said, n) is not None]
    given += ["in_order"] if said.in_order else []
    if not given:
        return None
    return PlanError(
        f"{given[0]} is given, but not the column it is about", code="HR-TIME-004",
        hint='Name the column of event time: time="at".',
    )  # fmt: skip


def _timed(said: Timing, delay: int | None, schema: pa.Schema) -> PlanError | None:
    assert said.time is not None
    if said.delay is None and not said.in_order:
        return PlanError(
            f"time={said.time!r} needs a delay", code="HR-TIME-002",
            hint='Say how late a row may come after a newer one: delay="2s"; '
            "or in_order=True if none ever does.",
        )  # fmt: skip
    if delay == 0 and said.delay is not None and not said.in_order:
        return PlanError(
            "a delay of zero makes every row late that comes after a newer one",
            code="HR-TIME-003",
            hint='Give the rows some time, as in delay="2s"; or say in_order=True.',
        )  # fmt: skip
    return _column(said.time, schema)


def _column(name: str, schema: pa.Schema) -> PlanError | None:
    if len(schema) == 0:
        return None
    if name not in schema.names:
        return unknown_column(name, schema)
    kind = schema.field(name).type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or pa.types.is_integer(kind):
        return None
    return PlanError(
        f"the time column {name!r} is of type {ddl_type(kind)}", code="HR-TIME-006",
        hint="Read it as a timestamp, a date, or a bigint of milliseconds since 1970.",
    )  # fmt: skip
