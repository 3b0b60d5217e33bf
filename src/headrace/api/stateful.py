"""Functions with a state per key: running results, `map_with_state`, `update_state_by_key`.

`reduce` starts with a key's first row, `fold` with a zero, made anew for each key so that no
two share a list. The functions with a state of their own are small process functions around
the user's: the same operator, state and guarantees.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from headrace.api.handles import PLAIN, JoinT, Results, StepBuilder, StreamT, TableT, TimedT
from headrace.callables import PyFunction, site_of, title
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.expr import Expr, col
from headrace.ops.agg.named import Aggregate
from headrace.ops.agg.own import OwnAggregate
from headrace.ops.fold import Folding, RunningFold
from headrace.ops.process.function import KeyedProcess, ProcessMeta
from headrace.ops.process.migration import checked
from headrace.ops.process.operator import ProcessSpec
from headrace.ops.process.state_kinds import ValueState, value
from headrace.ops.stream.running_aggregates import RunningAggregates
from headrace.plan import columns as cols
from headrace.plan.aggregate_changes import RESTART
from headrace.plan.aggregation import Aggregation, aggregation, named_specs
from headrace.plan.columns import clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.nodes import Edge
from headrace.plan.recomputation import BEGINNING
from headrace.plan.signature import (
    VALUE,
    check_takes,
    output_schema,
    record_schema,
    value_schema,
)
from headrace.records import is_record
from headrace.rows import as_rows, values_of
from headrace.schema import SchemaLike


class KeyedState(Results[StreamT, TimedT, JoinT, TableT]):
    """Running results of each key, and functions with a state per key."""

    def agg(
        self,
        *texts: str | Expr,
        unbounded: bool = False,
        name: str | Aggregate | Expr | None = None,
        was: str | Aggregate | Expr | None = None,
        since: str | Aggregate | Expr | None = None,
        was_fields: Mapping[str, str] | Aggregate | Expr | None = None,
        **aggs: Aggregate | Expr | str,
    ) -> StreamT:
        """Running aggregates: each row, and what the aggregates of its key are after it.

        As SQL text or as arithmetic, too: `agg("celsius - avg(celsius) as above")`, where a column
        outside of aggregates is the row's own.

        Of a changed program: `since="restart"` lets aggregates that its state does not have yet
        count from the start on, `since="beginning"` computes them of the past rows, too, read again
        from the inputs, and `was_fields={"new": "old"}` renames those that it has.
        """
        options, named = split_options(aggs, name=name, was=was, since=since, was_fields=was_fields)
        step = self._step(options["name"], options["was"])
        specs = named_specs(self._draft, texts, named, step.site)
        what = aggregation(self._draft, specs, step.schema, step.site, step.schema.names)
        step.report(*clashes(self._keys, [*what.fields, *what.computed], "part of the key"))
        new = {f.name: f for f in what.fields}
        replaced = [new.get(f.name, f) for f in step.schema]
        added = [f for f in what.fields if f.name not in step.schema.names]
        schema = pa.schema([*replaced, *added]) if len(step.schema) else UNKNOWN
        spec = RunningAggregates(what.aggs)
        before = of_stored(step, what, options)
        edge = step.stateful(spec, (self._keys,), schema, "agg", unbounded=unbounded, **before)
        order = [*step.schema.names, *(n for n in specs if n not in step.schema.names)]
        return self._stream(finished(step, edge, what, order))

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """Fold each key's rows into one row, fn(row, row) -> row; emits it after each row."""
        step = self._step(name, was)
        what = RunningFold(reduce_function(step, fn, self._keys))
        return self._add(step, "reduce", what, step.schema, unbounded)

    def fold(
        self,
        zero: Any,
        fn: Callable[[Any, Any], Any],
        *,
        schema: SchemaLike | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """Fold each key's rows into a value, fn(value, row) -> value; emits it after each row.

        `zero` is a value, or a function that makes one. A value that is not a record is one
        column, `value`.
        """
        step = self._step(name, was)
        folding = fold_function(step, zero, fn, schema)
        output = self._with_key(step, folding.value)
        return self._add(step, "fold", RunningFold(folding), output, unbounded)

    def map_with_state(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        state: Any,
        output: SchemaLike,
        unbounded: bool = False,
        ttl: Duration | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """fn(row, state) -> (row to emit, new state) for each row; None forgets the state.

        `state` is its type, which starts with None, or a `hr.value` with a default.
        """
        step = self._step(name, was)
        what = with_state(MapWithState, fn, _declared(step, fn, state, ttl, "map_with_state"))
        schema = step.attempt(lambda: output_schema(output))
        return self._add(step, "map_with_state", what, schema, unbounded)

    def flat_map_with_state(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        state: Any,
        output: SchemaLike,
        unbounded: bool = False,
        ttl: Duration | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """fn(row, state) -> (any number of rows to emit, new state); see `map_with_state`."""
        step = self._step(name, was)
        declared = _declared(step, fn, state, ttl, "flat_map_with_state")
        schema = step.attempt(lambda: output_schema(output))
        what = with_state(FlatMapWithState, fn, declared)
        return self._add(step, "flat_map_with_state", what, schema, unbounded)

    def update_state_by_key(
        self,
        fn: Callable[[list[Any], Any], Any],
        *,
        schema: SchemaLike,
        every_key: bool = False,
        unbounded: bool = False,
        ttl: Duration | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> StreamT:
        """fn(rows, state) -> new state, once for each key that has rows in a batch.

        Emits the key and its new state; None forgets it, and emits nothing. How rows are cut
        into batches is not promised: what `fn` makes of them should not depend on it. With
        `every_key` it is called in each batch for every key that has state, with no rows if
        there are none; so the cost of a batch grows with the keys held.
        """
        step = self._step(name, was)
        state, columns, fields = _state_columns(step, schema)
        declared = _declared(step, fn, state, ttl, "update_state_by_key")
        more: dict[str, Any] = {"several": len(self._keys) > 1, "fields": fields}
        if every_key:
            step.report(*_outlives(declared))
            more["_every_key"] = True
        what = with_state(UpdateState, fn, declared, **more)
        output = self._with_key(step, columns)
        return self._add(step, "update_state_by_key", what, output, unbounded)

    def _with_key(self, step: StepBuilder, columns: pa.Schema) -> pa.Schema:
        """The key, and these columns; those that clash with it are reported."""
        step.report(*clashes(self._keys, list(columns), "part of the key"))
        key = step.key_fields(self._keys)
        rest = [f for f in columns if f.name not in self._keys]
        return UNKNOWN if key is None or not len(columns) else pa.schema([*key, *rest])

    def _add(
        self, step: StepBuilder, kind: str, what: Any, schema: pa.Schema, unbounded: bool
    ) -> StreamT:
        return self._stream(step.stateful(what, (self._keys,), schema, kind, unbounded=unbounded))


class NeedsKey(Results[StreamT, TimedT, JoinT, TableT]):
    """The methods of `KeyedState` on a stream without a key: they say what is missing."""

    def agg(self, *aggregates: Any, **options: Any) -> StreamT:
        """Refused: running aggregates belong to a key. Say `.key_by(...)` or `.window(...)`."""
        return self._stream(refuse_unkeyed(self._step(), "agg", windowed=True))

    def reduce(self, fn: Any, **options: Any) -> StreamT:
        """Refused: running results belong to a key. Say `.key_by(...)` or `.window(...)`."""
        return self._stream(refuse_unkeyed(self._step(), "reduce", windowed=True))

    def fold(self, zero: Any, fn: Any, **options: Any) -> StreamT:
        """Refused: running results belong to a key. Say `.key_by(...)` or `.window(...)`."""
        return self._stream(refuse_unkeyed(self._step(), "fold", windowed=True))

    def map_with_state(self, fn: Any, **options: Any) -> StreamT:
        """Refused: state belongs to a key. Say `.key_by(...)` first."""
        return self._stream(refuse_unkeyed(self._step(), "map_with_state"))

    def flat_map_with_state(self, fn: Any, **options: Any) -> StreamT:
        """Refused: state belongs to a key. Say `.key_by(...)` first."""
        return self._stream(refuse_unkeyed(self._step(), "flat_map_with_state"))

    def update_state_by_key(self, fn: Any, **options: Any) -> StreamT:
        """Refused: state belongs to a key. Say `.key_by(...)` first."""
        return self._stream(refuse_unkeyed(self._step(), "update_state_by_key"))


class _WithState(KeyedProcess):
    """Around a function that takes a state and returns another; None forgets it."""

    state: Any

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def _store(self, state: Any) -> None:
        if state is None:
            del self.state
        else:
            self.state = state


class MapWithState(_WithState):
    """fn(row, state) -> (the row to emit, new state), for each row."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        output, state = self.fn(row, self.state)
        self._store(state)
        return output


class FlatMapWithState(_WithState):
    """fn(row, state) -> (the rows to emit, new state), for each row."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        output, state = self.fn(row, self.state)
        rows = as_rows(output)  # a generator may look at the state: it comes first
        self._store(state)
        return rows


class UpdateState(_WithState):
    """fn(rows, state) -> new state, once per key and batch; emits the key and the state."""

    rows_at_once = True
    several = False  # columns of the key
    fields: tuple[str, ...] = ()  # of a state that is a record

    def on_row(self, rows: Any, ctx: Any) -> Any:
        state = self.fn(rows, self.state)
        self._store(state)
        if state is None:
            return None
        key = ctx.key if self.several else (ctx.key,)
        return (*key, *(values_of(state, self.fields) if self.fields else (state,)))


def with_state(kind: type[_WithState], fn: Any, declared: ValueState, **more: Any) -> ProcessSpec:
    """The step of a process function named after the user's, which it calls."""
    members = {"state": declared, "__doc__": kind.__doc__, **more}
    process: Any = ProcessMeta(title(fn), (kind,), members)
    return ProcessSpec(("row",), process(fn), process.state())


def _state_columns(step: StepBuilder, schema: Any) -> tuple[Any, pa.Schema, tuple[str, ...]]:
    """The type of a state (or its declaration), its columns, and its fields if it is a record."""
    if isinstance(schema, ValueState):  # all that a declaration can say, such as its default
        if pa.types.is_struct(schema.type):
            columns = pa.schema(list(schema.type))
            return schema, columns, tuple(columns.names)
        return schema, pa.schema([(VALUE, schema.type)]), ()
    columns = step.attempt(lambda: record_schema(schema))
    if is_record(schema):
        return schema, columns, tuple(columns.names)
    if len(columns) > 1:
        return pa.struct(list(columns)), columns, tuple(columns.names)
    return columns.field(0).type if len(columns) else str, columns, ()


def _declared(
    step: StepBuilder, fn: Any, state: Any, ttl: Duration | None, method: str
) -> ValueState:
    """The declaration of the state; text where it is reported to be wrong."""
    with step.draft.attempt(step.site):
        check_takes(fn, 2, method)
        if not isinstance(state, ValueState):
            declaration: ValueState = value(state, ttl=ttl)
            return declaration
        if state.word == "value" and ttl is None:
            return state
        raise PlanError(
            "HR-PROCESS-020",
            f"{method} stores one value per key",
            "Pass a type as its state, and ttl=, or all of it in a hr.value.",
        )
    return value(str)


def _outlives(declared: ValueState) -> list[PlanError]:
    """A state that is written in every batch does not expire: refuse its ttl."""
    if declared.ttl is None:
        return []
    return [
        PlanError(
            "HR-PROCESS-021",
            "every_key=True writes the state of every key in every batch, so its ttl never passes",
            "Leave ttl out, return None for a key that is to be dropped, and pass unbounded=True.",
        )
    ]


def split_options(aggs: dict[str, Any], **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Tell the options of `agg` from result columns that are called so."""
    kinds = (Aggregate, OwnAggregate, Expr)
    results = {k: v for k, v in options.items() if isinstance(v, kinds)}
    return {k: None if k in results else v for k, v in options.items()}, {**results, **aggs}


def of_stored(step: StepBuilder, what: Aggregation, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a changed program says of the aggregates in its state: the fields of its node."""
    since, was_fields = options["since"], dict[str, str]()
    if since not in (None, RESTART, BEGINNING):
        hint = f'Say since="{RESTART}" or since="{BEGINNING}", or leave it out.'
        step.report(PlanError("HR-AGG-018", f"agg has since={since!r}", hint))
    with step.draft.attempt(step.site):
        names = pa.struct([pa.field(name, pa.null()) for name, _ in what.aggs])
        was_fields = checked(options["was_fields"], names)
    return {"since": since, "was_fields": was_fields}


def finished(step: StepBuilder, edge: Edge, what: Aggregation, order: Sequence[str]) -> Edge:
    """The step, and what is computed of the results of its aggregates, in this order."""
    if not what.projects:
        return edge
    if not len(edge.schema):
        return step.draft.finish(edge, (), UNKNOWN)
    exprs = {n: what.columns.get(n, col(n)) for n in order}
    specs = {n: cols.WRONG if e is None else e for n, e in exprs.items()}
    before = len(step.draft.problems)
    typed = cols.typed(step.draft, specs, edge.schema, step.site)
    for problem in step.draft.problems[before:]:
        for name in what.derived:
            problem.message = problem.message.replace(name, name.removeprefix("$"))
    return step.draft.finish(edge, typed.columns, typed.schema)


def reduce_function(
    step: StepBuilder, fn: Callable[[Any, Any], Any], keys: tuple[str, ...]
) -> Folding:
    """A reduce function and the columns it folds."""
    with step.draft.attempt(step.site):
        check_takes(fn, 2, "reduce")
        if len(step.schema) and set(step.schema.names) <= set(keys):
            raise PlanError(
                "HR-PLAN-021",
                "reduce has nothing to fold: every column is part of the key",
                "Use .agg(count=hr.count()) to count rows.",
            )
    value = pa.schema([f for f in step.schema if f.name not in keys])
    return Folding(PyFunction(fn, site_of(fn), PLAIN), None, value)


def fold_function(
    step: StepBuilder, zero: Any, fn: Callable[[Any, Any], Any], schema: SchemaLike | None
) -> Folding:
    """A fold function, the maker of its start value, and the accumulator's columns."""
    with step.draft.attempt(step.site):
        check_takes(fn, 2, "fold")
        if callable(zero):
            check_takes(zero, 0, "the zero of fold")
    make = zero if callable(zero) else partial(copy.deepcopy, zero)
    value = step.attempt(lambda: value_schema(fn, zero, schema, "fold"))
    with step.draft.attempt(step.site):
        _check_record(zero, value)
    start = PyFunction(make, site_of(fn), PLAIN)
    return Folding(PyFunction(fn, site_of(fn), PLAIN), start, value)


def _check_record(zero: object, value: pa.Schema) -> None:
    missing = [n for n in value.names if type(zero) is dict and n not in zero]
    if missing and value.names != ["value"]:
        raise PlanError(
            "HR-PLAN-045",
            f"the zero of fold is a dict without {missing[0]!r}",
            "A dict stands for a record: give it every column. To fold into a dict as one "
            'value, call its column so: schema="value map<string, bigint>".',
        )


def needs_no_key(fn: object) -> bool:
    """Whether a process function has operator state, and nothing that belongs to a key."""
    if not isinstance(fn, KeyedProcess):
        return False
    kind = type(fn)
    return bool(kind.by_task) and not (kind.values or kind.shared or kind.timed())


def refuse_unkeyed(
    step: StepBuilder, method: str, fn: object = None, *, windowed: bool = False
) -> Edge:
    """State belongs to a key, and so do timers: report that there is none.

    `windowed`: windows without a key have this method.
    """
    timers = isinstance(fn, KeyedProcess) and type(fn).timed()
    keeps = not isinstance(fn, KeyedProcess) or bool(type(fn).values)
    does = [*(["sets timers"] if timers else []), *(["keeps state"] if keeps else [])]
    does_what = f"{' and '.join(does) or 'hands over rows'} by key"
    of_key = "whose state it is" if keeps else "whose timers they are"
    asks = of_key if does else "which rows belong together"
    instead = "" if does else "; or use map or flat_map, which need no key"
    if does and isinstance(fn, KeyedProcess) and not timers:
        instead = "; or store it per task: hr.operator_value, hr.operator_list"
    instead = f"; or, for all rows, .window(...).{method}(...)" if windowed else instead
    step.report(
        PlanError(
            "HR-PROCESS-002" if timers else "HR-PROCESS-001",
            f"{method} {does_what}, but {step.draft.name_of(step.edge)!r} has no key",
            f'Say {asks}: .key_by("column").{method}(...){instead}.',
        )
    )
    what = with_state(MapWithState, lambda row, state: None, value(str))
    return step.stateful(what, ((),), UNKNOWN, method, unbounded=True)
