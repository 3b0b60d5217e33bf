"""Streams by key: keyed streams, tables of the latest row of each key, control streams, and the
functions that bring several streams together by key.

Steps here hold state for every key ever seen unless they work on windows: without
`unbounded=True` the plan refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headrace import notebook
from headrace.api import join_keys, stream
from headrace.api.connected import By, ConnectedStreams, Input, connect_streams, input_name
from headrace.api.handles import AnyBroadcast, AnyStream, StepBuilder, names_of
from headrace.api.join_keys import add_join
from headrace.api.joins import TableJoins, not_joinable, unbounded_join
from headrace.api.patterns import MatchArguments
from headrace.api.ranking import running_top, suppressed
from headrace.api.small_operators import SharedMethods
from headrace.api.stateful import KeyedState
from headrace.api.window_arguments import WindowArguments
from headrace.api.windowed import WindowedStream
from headrace.clock import Duration
from headrace.errors import PlanError, call_site
from headrace.expr import col
from headrace.hints import UnknownNameError, named_arguments, no_such_name
from headrace.ops.join.many import MANY_HOWS, ManyJoin
from headrace.ops.join.sides import GONE
from headrace.ops.join.table_changes import CHANGE, RETRACT
from headrace.ops.process.function import KeyedProcess
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.trigger_base import Trigger
from headrace.plan.draft import Draft
from headrace.plan.nodes import Edge
from headrace.printed import columns_html
from headrace.schema import SchemaLike, ddl_of


@named_arguments
class KeyedStream(
    SharedMethods["stream.Stream", "stream.TimedResult", "stream.JoinResult", "Table"],
    KeyedState["stream.Stream", "stream.TimedResult", "stream.JoinResult", "Table"],
):
    """A stream and the columns that are its key."""

    def __init__(self, draft: Draft, edge: Edge, keys: tuple[str, ...]) -> None:
        super().__init__(draft, edge)
        self._keys = keys

    @property
    def _kinds(
        self,
    ) -> tuple[type[stream.Stream], type[stream.TimedResult], type[stream.JoinResult], type[Table]]:
        return stream.Stream, stream.TimedResult, stream.JoinResult, Table

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self._keys

    @property
    def unkeyed(self) -> stream.Stream:
        """The same rows without the key."""
        return stream.Stream(self._draft, self._edge)

    def _repr_html_(self) -> str:
        more = f"KeyedStream by {', '.join(self._keys)}; show() computes its first rows"
        return notebook.heading(self.unkeyed.name, more) + columns_html(self.schema)

    def __repr__(self) -> str:
        return f"<KeyedStream {self.unkeyed.name!r} by {', '.join(self._keys)}>"

    def window(
        self,
        window: Any,
        *,
        time: str | None = None,
        trigger: Trigger | None = None,
        lateness: Duration = 0,
        evict: Evictor | None = None,
        mode: str = "replace",
        info: bool | None = None,
        may_lose: bool = False,
        result_time: str = "end",
        keep: Duration = 0,
    ) -> WindowedStream[stream.WindowResult]:
        """Cut each key's rows into windows: `window(hr.tumbling("5s"))`.

        `time` is "event", which is usual, or "processing". `trigger` says when a window shows
        its result besides when it is over, `lateness` how long it then waits for late rows,
        `evict` which of its rows are seen, `mode` whether a firing shows all ("replace"), what
        is new ("delta"), or takes the old result back first ("retract"). `info` adds the
        columns `pane`, `timing` and `final`; by default where a window may fire more than once.
        `result_time` is the event time of results: of the window's "end", or of the "earliest" or
        "latest" of its rows; steps after it then wait for as long as a window is. `keep` is for how
        long windows that are over can still be looked at, with `run.state`.
        """
        args = WindowArguments(
            window, time, trigger, lateness, evict, mode, info, may_lose, result_time, keep
        )
        cut = args.cut(self._step())
        return WindowedStream(self._draft, self._edge, self._keys, cut, stream.WindowResult)

    def process(
        self,
        fn: KeyedProcess,
        *,
        output: SchemaLike | None = None,
        order: str | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.ProcessResult:
        """Hand each key's rows to a process function that may store values.

        With `order="event_time"` rows are held until the watermark has passed them, and rows and
        timers of a key come in the order of event time, however rows are cut into batches; rows
        that the watermark has passed before are `.late`. Otherwise this order holds within a batch.
        """
        label = input_name(self)
        return ConnectedStreams(
            self._draft, (self._edge,), (self._keys,), (label,), stream.ProcessResult
        ).process(fn, output=output, order=order, unbounded=unbounded, name=name, was=was)

    def match(
        self,
        pattern: Any = None,
        *,
        select: Any = None,
        output: SchemaLike | None = None,
        rules: Any = None,
        timeouts: bool = False,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.MatchResult:
        """Find a pattern among each key's rows, or several: `match(hr.pattern(...))`.

        `select` says what a match emits: columns over its rows, as in {"sum": "a.x + b.x"}, or a
        function of the match, whose rows `output` describes; else the rows by name. With
        {"name": pattern} there are several and a column `pattern`. `rules` is a control stream
        that brings patterns while the job runs; `timeouts` emits matches that were never completed.
        """
        args = MatchArguments(pattern, select, output, rules, timeouts, unbounded)
        edge = args.add(self._step(name, was), self._keys)
        return stream.MatchResult(self._draft, edge)

    def connect(
        self, other: KeyedStream | BroadcastStream, *, names: tuple[str, str] | None = None
    ) -> ConnectedStreams[stream.ProcessResult]:
        """This stream and another, key by key, for a process function with two inputs."""
        return connect_streams((self, other), None, names, stream.ProcessResult)

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            if hasattr(stream.Stream, method):
                raise UnknownNameError(
                    "HR-PLAN-060",
                    f"a keyed stream has no {method!r}",
                    "Call it before key_by, or on .unkeyed.",
                    site=call_site(),
                )
            raise no_such_name("a keyed stream", method, dir(KeyedStream))


@named_arguments
class Table(TableJoins["stream.JoinResult"]):
    """The latest row of each key."""

    def suppress(
        self,
        period: Duration | None = None,
        *,
        rows: int | None = None,
        time: str | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> Table:
        """The table with fewer changes: of a key's in each `period`, or of so many, the last.

        See `KeyedStream.suppress`. A key that begins and ends in one period never was.
        """
        step, first = self._step(name, was), self._edge
        if first.node.timed and (period is None or time == "processing"):
            # they count by arrival, so versions must arrive in order of event time
            ordered = self._step(**step.part("in order"))
            limits = ("1ms", None, "event")
            first = suppressed(ordered, self._keys, limits, True, self._unbounded)
            step = StepBuilder(self._draft, first, name, was)
        edge = suppressed(step, self._keys, (period, rows, time), True, self._unbounded)
        return Table(self._draft, edge, self._keys, self._deletes, self._unbounded)

    def top(
        self,
        rows: int,
        *,
        by: str,
        largest: bool = True,
        per: str | Sequence[str] = (),
        time: str = "event",
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult:
        """The best rows of the table, or of each `per`, as changes; see `KeyedStream.top`."""
        changes = self.changes(time=time, **self._step(name, was).part("changes"))
        step, groups = changes._step(), names_of(per)
        columns: dict[str, Any] = {n: col(n) for n in step.schema.names if n != CHANGE}
        edge = step.columns("top", {**columns, GONE: col(CHANGE) == RETRACT})
        after = StepBuilder(self._draft, edge, name, was)
        after.require_columns(groups)
        chosen = (rows, by, largest, self._keys)
        ranked = running_top(after, groups, chosen, self._unbounded)
        return stream.TimedResult(self._draft, ranked, late_at=changes._late_node)

    def _joined(self, edge: Edge) -> stream.JoinResult:
        return stream.JoinResult(self._draft, edge)

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            if hasattr(stream.Stream, method):
                raise AttributeError(
                    f"a table has no {method!r}: its changes are a stream, .changes().{method}"
                )
            raise no_such_name("a table", method, dir(Table))

    def _repr_html_(self) -> str:
        more = f"Table by {', '.join(self._keys)}; show() computes its rows"
        name = self._draft.name_of(self._edge)
        return notebook.heading(name, more) + columns_html(self.schema)

    def __repr__(self) -> str:
        return f"<Table {self._draft.name_of(self._edge)!r} by {', '.join(self._keys)}>"


@named_arguments
class BroadcastStream(AnyBroadcast):
    """A control stream: each of its rows reaches every task of the step it is an input of."""

    def __repr__(self) -> str:
        return f"<BroadcastStream {self._draft.name_of(self._edge)!r}>"

    if not TYPE_CHECKING:  # mypy still finds methods that do not exist

        def __getattr__(self, method: str) -> Any:
            others = (stream.Stream, KeyedStream)
            if any(callable(getattr(kind, method, None)) for kind in others):
                raise PlanError(
                    "HR-PLAN-046",
                    f"a broadcast stream has no {method!r}: it can only be an input of connect "
                    "or the rules of match",
                    f"Call {method} on the stream itself, before or beside .broadcast().",
                    site=call_site(),
                )
            raise no_such_name("a broadcast stream", method, dir(BroadcastStream))


# Functions of several streams, each under a name.


def connect(by: By = None, **streams: Input) -> ConnectedStreams[stream.ProcessResult]:
    """Connect named streams by key: `hr.connect(by="area", average=a, smoke=s).process(fn)`.

    `by` is a column (or columns) that all have, or a mapping from input name to its columns;
    leave it out for streams that are keyed already. A control stream, `rules.broadcast()`,
    needs no key: its rows reach every task.
    """
    return connect_streams(list(streams.values()), by, list(streams), stream.ProcessResult)


def join_all(
    *,
    on: str | Sequence[str] | None = None,
    how: str = "inner",
    within: Any = None,
    lateness: Duration = 0,
    name: str | None = None,
    was: str | None = None,
    **streams: AnyStream,
) -> stream.JoinResult:
    """One row of each of several streams with the same key, all `within` a time of each other.

    `hr.join_all(on="id", within="1m", order=a, payment=b, parcel=c)`. A column that several
    have is called by their names: `price_order`, `price_payment`. `how="left"` and
    `how="full"` also emit rows that lack some of the streams, once nothing can be added to them:
    those with a row of the first stream, or of any.
    """
    hint = 'Name them: hr.join_all(on="id", within="1m", order=a, payment=b).'
    for label, item in streams.items():  # an option that join_all has not, such as suffix=
        if not hasattr(item, "_draft"):
            fact = f"join_all needs streams, but {label}= is {item!r}"
            rest = " Besides them it takes on, how, within, lateness, name and was."
            raise _with_site(PlanError("HR-JOIN-008", fact, hint + rest))
        if (problem := not_joinable(item)) is not None:
            raise _with_site(problem)
    if len(streams) < 2:
        raise _with_site(PlanError("HR-JOIN-012", f"join_all joins {len(streams)} streams", hint))
    first, *others = streams.values()
    step = StepBuilder(first._draft, first._edge, name, was)
    inputs = (first, *(join_keys.same_job(step, first, other) for other in others))
    keys = join_keys.keys_of(step, inputs, on)
    columns, schema = join_keys.result_of_all(
        step, [s.schema for s in inputs], keys, tuple(streams)
    )
    rows, names = tuple(ddl_of(s.schema) for s in inputs), tuple(streams)
    what = ManyJoin("inner", names, 0, 0, columns, rows)
    with step.draft.attempt(step.site):
        _check_how(how)
        if within is None:
            raise unbounded_join("join_all", 'within="5m"')
        lower, upper = join_keys.interval(within)
        if lower != -upper:
            hint = 'Write within="5m": no two rows are further apart.'
            raise PlanError("HR-JOIN-004", "join_all takes one length as within=", hint)
        what = ManyJoin(how, names, upper, join_keys.patience(lateness), columns, rows)
    return stream.JoinResult(step.draft, add_join(step, inputs, keys, what, schema))


def _check_how(how: str) -> None:
    if how in MANY_HOWS:
        return
    hint = f"Choose one of {', '.join(MANY_HOWS)}."
    if how == "right":
        hint += " For the rows of another stream, name that one first and say left."
    if how in ("semi", "anti"):
        hint += f' Or join two at a time: a.join(b, on="id", within="1m", how="{how}").'
    raise PlanError("HR-JOIN-005", f"how of join_all cannot be {how!r}", hint)


def _with_site(problem: PlanError) -> PlanError:
    """A problem that leaves no stream to go on with."""
    problem.site = call_site()
    return problem
