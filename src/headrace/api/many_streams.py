"""Functions of several streams, each under a name: `hr.connect` and `hr.join_all`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.api import join_keys
from headrace.api.connected import By, ConnectedStreams, Input, connect_streams
from headrace.api.handles import AnyStream
from headrace.api.join_keys import add_join
from headrace.api.joins import not_joinable, unbounded_join
from headrace.api.step_builder import StepBuilder
from headrace.api.stream import JoinResult, ProcessResult
from headrace.clock import Duration
from headrace.errors import PlanError, call_site
from headrace.ops.join.many import MANY_HOWS, ManyJoin
from headrace.schema import ddl_of


def connect(by: By = None, **streams: Input) -> ConnectedStreams[ProcessResult]:
    """Connect named streams by key: `hr.connect(by="area", average=a, smoke=s).process(fn)`.

    `by` is a column (or columns) that all have, or a mapping from input name to its columns;
    leave it out for streams that are keyed already. A control stream, `rules.broadcast()`,
    needs no key: its rows reach every task.
    """
    return connect_streams(list(streams.values()), by, list(streams), ProcessResult)


def join_all(
    *,
    on: str | Sequence[str] | None = None,
    how: str = "inner",
    within: Any = None,
    lateness: Duration = 0,
    name: str | None = None,
    was: str | None = None,
    **streams: AnyStream,
) -> JoinResult:
    """One row of each of several streams with the same key, all `within` a time of each other.

    `hr.join_all(on="id", within="1m", order=a, payment=b, parcel=c)`. A column that several
    have is called by their names: `price_order`, `price_payment`. `how="left"` and
    `how="full"` also give what lacks some of the streams, if no row could be added to it:
    with a row of the first stream, or of any.
    """
    hint = 'Name them: hr.join_all(on="id", within="1m", order=a, payment=b).'
    for label, one in streams.items():  # an option that join_all has not, such as suffix=
        if not hasattr(one, "_draft"):
            fact = f"join_all needs streams, but {label}= is {one!r}"
            rest = " Besides them it takes on, how, within, lateness, name and was."
            raise _at_once(PlanError("HR-JOIN-008", fact, hint + rest))
        if (wrong := not_joinable(one)) is not None:
            raise _at_once(wrong)
    if len(streams) < 2:
        raise _at_once(PlanError("HR-JOIN-012", f"join_all joins {len(streams)} streams", hint))
    first, *others = streams.values()
    step = StepBuilder(first._draft, first._edge, name, was)
    all_ = (first, *(join_keys.same_job(step, first, other) for other in others))
    keys = join_keys.keys_of(step, all_, on)
    columns, schema = join_keys.result_of_all(step, [s.schema for s in all_], keys, tuple(streams))
    rows, names = tuple(ddl_of(s.schema) for s in all_), tuple(streams)
    what = ManyJoin("inner", names, 0, 0, columns, rows)
    with step.draft.attempt(step.site):
        _how_of_all(how)
        if within is None:
            raise unbounded_join("join_all", 'within="5m"')
        lower, upper = join_keys.interval(within)
        if lower != -upper:
            hint = 'Write within="5m": no two rows are further apart.'
            raise PlanError("HR-JOIN-004", "join_all takes one length as within=", hint)
        what = ManyJoin(how, names, upper, join_keys.patience(lateness), columns, rows)
    return JoinResult(step.draft, add_join(step, all_, keys, what, schema))


def _how_of_all(how: str) -> None:
    if how in MANY_HOWS:
        return
    hint = f"Choose one of {', '.join(MANY_HOWS)}."
    if how == "right":
        hint += " For the rows of another stream, name that one first and say left."
    if how in ("semi", "anti"):
        hint += f' Or join two at a time: a.join(b, on="id", within="1m", how="{how}").'
    raise PlanError("HR-JOIN-005", f"how of join_all cannot be {how!r}", hint)


def _at_once(problem: PlanError) -> PlanError:
    """A problem that leaves no stream to go on with."""
    problem.site = call_site()
    return problem
