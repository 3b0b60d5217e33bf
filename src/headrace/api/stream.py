"""Streams: immutable handles on the rows that a step emits.

A method adds one step to the job's draft and returns the stream after it; no row is touched.
Mistakes do not raise here: they are recorded with the user's file and line, and reported all
together by `job.check()`, `job.explain()` and `run`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from headrace import notebook
from headrace.api import keyed
from headrace.api.async_calls import AsyncMapping
from headrace.api.branches import Branches
from headrace.api.connected import By, ConnectedStreams, Input, connect_streams, input_name
from headrace.api.handles import Handle, names_of, other_job
from headrace.api.inputs import check_kind, check_place
from headrace.api.loops import Repeating
from headrace.api.patterns import MatchArguments
from headrace.api.ranking import window_top
from headrace.api.row_steps import ColumnLike, Condition, RowSteps
from headrace.api.small_operators import SharedMethods
from headrace.api.stateful import NeedsKey, needs_no_key, refuse_unkeyed
from headrace.api.streamlets import Streamlets
from headrace.api.window_arguments import WindowArguments
from headrace.api.windowed import WindowedStream
from headrace.clock import Duration
from headrace.errors import OutputError, PlanError, call_site
from headrace.expr import Expr, col
from headrace.hints import named_arguments, no_item, no_such_name
from headrace.ops.process.function import KeyedProcess
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.trigger_base import Trigger
from headrace.plan import columns as cols
from headrace.plan.draft import Draft, place_name, points_somewhere
from headrace.plan.nodes import LATE, Edge, Node, Stateful, Union, Write, late_port, step_of
from headrace.plan.signature import check_takes
from headrace.printed import columns_html
from headrace.schema import SchemaLike
from headrace.secrets import without_secrets
from headrace.sinks import Output
from headrace.sinks.on_driver import ForEachBatch


@named_arguments
class Stream(
    RowSteps["Stream", "TimedResult", "JoinResult", "keyed.Table"],
    SharedMethods["Stream", "TimedResult", "JoinResult", "keyed.Table"],
    NeedsKey["Stream", "TimedResult", "JoinResult", "keyed.Table"],
    AsyncMapping["Stream", "TimedResult", "JoinResult", "keyed.Table"],
    Streamlets["Stream", "TimedResult", "JoinResult", "keyed.Table"],
    Repeating,
):
    """A stream of rows. Streams are values: every method returns a new one."""

    @property
    def _kinds(self) -> tuple[type[Stream], type[TimedResult], type[JoinResult], type[keyed.Table]]:
        return Stream, TimedResult, JoinResult, keyed.Table

    @property
    def name(self) -> str:
        """The name of the step that emits these rows."""
        return self._draft.name_of(self._edge)

    def __repr__(self) -> str:
        columns = ", ".join(f"{f.name}: {f.type}" for f in self.schema)
        return f"<{type(self).__name__} {self.name!r} ({columns})>"

    def _repr_html_(self) -> str:
        more = f"{type(self).__name__}; show() computes its first rows"
        return notebook.heading(self.name, more) + columns_html(self.schema)

    def named(self, name: str, *, was: str | None = None) -> Self:
        """Name the step just written; `was` is the name it had in an earlier version."""
        return type(self)(self._draft, self._draft.rename(self._edge, name, was, call_site()))

    def split(self, **conditions: Condition) -> Branches[Stream]:
        """Send each row to the first branch whose condition is true; the rest to `.other`."""
        return Branches(self._step(), conditions, Stream)

    branch = split

    def union(self, *others: Stream, name: str | None = None, was: str | None = None) -> Stream:
        """The rows of this stream and of others that have the same columns."""
        step = self._step(name, was)
        streams = [o for o in others if isinstance(o, Handle)]
        if wrong := [o for o in others if not isinstance(o, Handle)]:
            fact = f"union takes streams, not {type(wrong[0]).__name__}"
            step.report(PlanError("HR-PLAN-065", fact, "Write a.union(b, c)."))
        if any(o._draft is not self._draft for o in streams):
            step.report(other_job())
        inputs = (self._edge, *(o._edge for o in streams if o._draft is self._draft))
        common = {**step.common(), "inputs": inputs, "timed": all(e.node.timed for e in inputs)}
        return self._stream(step.add(Union(schema=self.schema, **common), "union"))

    def key_by(
        self,
        *names: str | Expr | Callable[[Any], Any] | Sequence[str | Expr],
        **exprs: ColumnLike,
    ) -> keyed.KeyedStream:
        """Bring together the rows that agree on these columns, or on these expressions."""
        step = self._step()
        picked, keys = step.keys(names, exprs)
        edge = self._edge
        if any(not cols.is_column(spec, n) for n, spec in picked.items()):
            columns = {n: col(n) for n in self.schema.names}
            edge = step.columns("key_by", {**columns, **picked})
        return keyed.KeyedStream(self._draft, edge, keys)

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
    ) -> WindowedStream[WindowResult]:
        """Cut all rows into windows, whatever their key; see `KeyedStream.window`."""
        args = WindowArguments(
            window, time, trigger, lateness, evict, mode, info, may_lose, result_time, keep
        )
        return WindowedStream(self._draft, self._edge, (), args.cut(self._step()), WindowResult)

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
    ) -> MatchResult:
        """Find patterns among all rows, whatever their key; see `KeyedStream.match`."""
        args = MatchArguments(pattern, select, output, rules, timeouts, unbounded)
        return MatchResult(self._draft, args.add(self._step(name, was), ()))

    def process(
        self,
        fn: KeyedProcess,
        *,
        output: SchemaLike | None = None,
        order: str | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> ProcessResult:
        """Hand rows, spread over the tasks, to a process function with operator state only.

        State by key and timers belong to a key: say `.key_by(...)` first. With
        `order="event_time"` each task holds its rows until the watermark has passed them.
        """
        if not needs_no_key(fn):
            edge = refuse_unkeyed(self._step(name), "process", fn)
            return ProcessResult(self._draft, edge)
        label = input_name(self)
        return ConnectedStreams(self._draft, (self._edge,), ((),), (label,), ProcessResult).process(
            fn, output=output, order=order, unbounded=unbounded, name=name, was=was
        )

    def broadcast(self) -> keyed.BroadcastStream:
        """This stream as a control stream: its rows reach every task, whatever their key."""
        return keyed.BroadcastStream(self._draft, self._edge)

    def connect(
        self, other: Input, *, by: By = None, names: Sequence[str] | None = None
    ) -> ConnectedStreams[ProcessResult]:
        """This stream and another, key by key, for a process function with two inputs."""
        return connect_streams((self, other), by, names, ProcessResult)

    def write(
        self,
        uri: str | Output,
        *,
        format: str | None = None,
        name: str | None = None,
        was: str | None = None,
        **options: Any,
    ) -> None:
        """Send the rows to "log:topic", "files:path", "console:" ..., or to a `hr.Output` of your
        own; as often as you like."""
        step = self._step(name, was)
        uri, options = without_secrets(uri, options)
        chosen = {**({"format": format} if format else {}), **options}
        with self._draft.attempt(step.site):
            check_place(uri, "write")
            check_kind(uri, "write", chosen)
        place = (
            place_name(uri if isinstance(uri, str) else str(uri), options)
            if points_somewhere(str(uri))
            else ""
        )
        node = Write(schema=self.schema, uri=uri, options=chosen, **step.common())
        step.add(node, "write", place)

    def for_each_batch(
        self,
        fn: Callable[[Any, int], object],
        *,
        engine: str = "spark",
        name: str | None = None,
        was: str | None = None,
    ) -> None:
        """Call `fn(frame, epoch)` on the driver for each epoch with rows, in order.

        `frame` is a Spark DataFrame, or an Arrow table with engine="arrow". At least once: after
        a crash the last epoch may come again, with the same number and the same rows.
        """
        with self._draft.attempt(call_site()):
            check_takes(fn, 2, "for_each_batch")
            if engine not in ("arrow", "spark"):
                fact = f"for_each_batch(engine=) is {engine!r}"
                hint = 'Write engine="spark" or engine="arrow".'
                raise OutputError("HR-OUTPUT-008", fact, hint)
        self.write(ForEachBatch(engine, fn), name=name, was=was)

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            columns = self.schema.names if "_edge" in self.__dict__ else ()
            raise no_such_name("a stream", method, dir(type(self)), columns)

        def __getitem__(self, item: object) -> Any:
            raise no_item("a stream", item, self.schema.names)


@named_arguments
class WindowResult(Stream):
    """What windows computed; the rows that came too late for them are a stream as well."""

    @property
    def late(self) -> Stream:
        """Rows, as they went into the step, that came after their windows had closed."""
        return Stream(self._draft, Edge(step_of(self._edge.node), LATE))

    def top(  # type: ignore[override]
        self,
        rows: int,
        *,
        by: str,
        largest: bool = True,
        per: str | Sequence[str] = (),
        name: str | None = None,
        was: str | None = None,
    ) -> TimedResult:
        """The best results of each window, and of each `per` in it; with the column `rank`."""
        step, keys = self._step(name, was), names_of(per)
        return self._timed(window_top(step, (rows, by, largest, keys)))


@named_arguments
class ProcessResult(Stream):
    """What a process function emitted; each of its side outputs is a stream as well."""

    def side(self, name: str) -> Stream:
        """The rows that it emitted by `ctx.emit(name, row)`."""
        node = self._edge.node
        if name not in node.sides:
            sides = ", ".join(node.sides) or "none"
            raise PlanError(
                "HR-PLAN-034",
                f"{node.name!r} has no side output {name!r}; it has {sides}",
                'Declare it in the class: outputs = {"name": "column type, ..."}.',
                site=call_site(),
            )
        return Stream(self._draft, Edge(node, name))

    @property
    def late(self) -> Stream:
        """Rows, as they went into the step, that the watermark had passed: with `order=`."""
        return self._late_rows(LATE)

    def _late_rows(self, port: str) -> Stream:
        return Stream(self._draft, Edge(self._late_node, port))

    @property
    def _late_node(self) -> Node:
        node = self._edge.node
        if isinstance(node, Stateful) and not node.what.has_late:
            raise PlanError(
                "HR-PROCESS-024",
                f"no row is late for {node.name!r}: its function sees each row in the batch in "
                "which it comes",
                'Say process(..., order="event_time"); or compare ctx.time with ctx.watermark.',
                site=call_site(),
            )
        return node

    def late_of(self, input: str) -> Stream:
        """Late rows, as they came, of one of several inputs: by its name, or "left" or "right"."""
        return self._late_rows(late_port(self._port_of(self._late_node, input)))

    def _port_of(self, node: Node, input: str) -> int:
        """Which of the inputs of a step is called so."""
        named = node.what.input_names if isinstance(node, Stateful) else ()
        names = named or ("left", "right")[: len(node.inputs)]
        if input not in names:
            raise PlanError(
                "HR-JOIN-011",
                f"{node.name!r} has no input {input!r}; it has {', '.join(names)}",
                "Name one of them.",
                site=call_site(),
            )
        return names.index(input)


@named_arguments
class TimedResult(ProcessResult):
    """What an operator emitted; late rows are a stream as well, as side outputs are."""

    def __init__(
        self,
        draft: Draft,
        edge: Edge,
        late_at: Node | None = None,
        late_columns: Sequence[str] = (),
    ) -> None:
        super().__init__(draft, edge)
        self._late_at = late_at  # the step for which rows are late, if it is another one
        self._late_columns = late_columns  # if not all that went into that step
        self._selected: dict[str, Stream] = {}  # late rows, of which only these are asked for

    @property
    def late(self) -> Stream:
        """Rows, as they went into the step, that came too late for it."""
        return self._late_rows(LATE)

    def _late_rows(self, port: str) -> Stream:
        rows = super()._late_rows(port)
        if not self._late_columns:
            return rows
        if port not in self._selected:
            self._selected[port] = rows.select(*self._late_columns)
        return self._selected[port]

    @property
    def _late_node(self) -> Node:
        return self._late_at or self._edge.node


@named_arguments
class JoinResult(TimedResult):
    """What a join emitted; `late` are the late rows of the left or first stream."""

    @property
    def late(self) -> Stream:
        """Rows of the left or first stream that came too late to be joined."""
        return Stream(self._draft, Edge(self._late_node, LATE))

    @property
    def _late_node(self) -> Node:
        node = self._edge.node
        if isinstance(node, Stateful) and node.what.own_key:  # they are late for the step before
            node = node.inputs[0].node
        while isinstance(before := node.inputs[0].node, Stateful) and before.what.thins_table:
            node = before
        return node

    def late_of(self, input: str) -> Stream:
        """Late rows, as they came, of "left", "right", or a stream that `join_all` names."""
        node = self._edge.node
        port = self._port_of(node, input)
        return Stream(self._draft, Edge(node, late_port(port))) if port else self.late


@named_arguments
class MatchResult(Stream):
    """Matches; late rows and partial matches that were never completed are streams as well."""

    @property
    def late(self) -> Stream:
        """Rows, as they went into the step, that came after the watermark had passed them."""
        return Stream(self._draft, Edge(self._edge.node, LATE))

    @property
    def timeouts(self) -> Stream:
        """Partial matches whose `within` was over, if `timeouts=True` was said."""
        node = self._edge.node
        if "timeouts" not in node.sides:
            raise PlanError(
                "HR-PATTERN-030",
                f"{node.name!r} does not emit its timeouts",
                "Say match(..., timeouts=True).",
                site=call_site(),
            )
        return Stream(self._draft, Edge(node, "timeouts"))
