"""Functions with a state of their own: `map_with_state`, `update_state_by_key` and the like.

Each is a small process function around the user's: the same operator, state and guarantees.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from headrace.api.step_builder import Adding
from headrace.callables import title
from headrace.clock import Duration
from headrace.errors import PlanError
from headrace.ops.process.call import many
from headrace.ops.process.declare import value
from headrace.ops.process.kept import Kept
from headrace.ops.process.keyed import Declared, KeyedProcess
from headrace.ops.process.spec import ProcessSpec
from headrace.plan.aggs import clashes
from headrace.plan.draft import UNKNOWN
from headrace.plan.nodes import Edge, Stateful
from headrace.plan.signature import VALUE, check_takes, given_schema, record_schema
from headrace.records import is_record
from headrace.rows import values_of
from headrace.schema import SchemaLike


class _WithState(KeyedProcess):
    """Around a function that takes a state and gives another; None forgets it."""

    state: Any

    def __init__(self, fn: Callable[[Any, Any], Any]) -> None:
        self.fn = fn

    def _keep(self, state: Any) -> None:
        if state is None:
            del self.state
        else:
            self.state = state


class MapWithState(_WithState):
    """fn(row, state) -> (the row to give, new state), for each row."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        given, state = self.fn(row, self.state)
        self._keep(state)
        return given


class FlatMapWithState(_WithState):
    """fn(row, state) -> (the rows to give, new state), for each row."""

    def on_row(self, row: Any, ctx: Any) -> Any:
        given, state = self.fn(row, self.state)
        rows = many(given)  # a generator may look at the state: it comes first
        self._keep(state)
        return rows


class UpdateState(_WithState):
    """fn(rows, state) -> new state, once per key and batch; gives the key and the state."""

    rows_at_once = True
    several = False  # columns of the key
    fields: tuple[str, ...] = ()  # of a state that is a record

    def on_row(self, rows: Any, ctx: Any) -> Any:
        state = self.fn(rows, self.state)
        self._keep(state)
        if state is None:
            return None
        key = ctx.key if self.several else (ctx.key,)
        return (*key, *(values_of(state, self.fields) if self.fields else (state,)))


def map_with_state(
    at: Adding,
    keys: tuple[str, ...],
    flat: bool,
    fn: Callable[..., Any],
    state: Any,
    output: SchemaLike,
    unbounded: bool,
    ttl: Duration | None,
) -> Edge:
    method = "flat_map_with_state" if flat else "map_with_state"
    kept = _kept(at, fn, state, ttl, method)
    schema = at.attempt(lambda: given_schema(output))
    kind = FlatMapWithState if flat else MapWithState
    return _added(at, keys, _made(kind, fn, kept), schema, unbounded, method)


def update_state_by_key(
    at: Adding,
    keys: tuple[str, ...],
    fn: Callable[..., Any],
    schema: Any,
    unbounded: bool,
    ttl: Duration | None,
) -> Edge:
    method = "update_state_by_key"
    state: Any = schema
    if isinstance(schema, Kept):  # all that a declaration can say, such as its default
        whole = pa.types.is_struct(schema.type)
        columns = pa.schema(list(schema.type) if whole else [(VALUE, schema.type)])
    else:
        columns = at.attempt(lambda: record_schema(schema))
        whole = is_record(schema) or len(columns) > 1
        plain = columns.field(0).type if len(columns) == 1 and not whole else None
        state = schema if is_record(schema) else pa.struct(list(columns)) if whole else plain
    kept = _kept(at, fn, state or str, ttl, method)
    for problem in clashes(keys, list(columns), "part of the key"):
        at.report(problem)
    names = {"several": len(keys) > 1, "fields": tuple(columns.names) if whole else ()}
    key = [at.schema.field(k) for k in keys if k in at.schema.names]
    known = len(columns) and len(key) == len(keys)
    given = pa.schema([*key, *columns]) if known else UNKNOWN
    return _added(at, keys, _made(UpdateState, fn, kept, **names), given, unbounded, method)


def _kept(at: Adding, fn: Any, state: Any, ttl: Duration | None, method: str) -> Kept:
    """The declaration of the state; text where it is reported to be wrong."""
    kept: Kept = value(str)
    with at.draft.attempt(at.site):
        check_takes(fn, 2, method)
        declared = isinstance(state, Kept)
        if declared and (state.word != "value" or ttl is not None):
            raise PlanError(
                "HR-PROCESS-020",
                f"{method} keeps one value per key",
                "Give a type as its state, with ttl= beside it, or all of it in a hr.value.",
            )
        kept = state if declared else value(state, ttl=ttl)
    return kept


def _made(kind: type[_WithState], fn: Any, kept: Kept, **more: Any) -> KeyedProcess:
    """A process function named after the user's."""
    made: Any = Declared(title(fn), (kind,), {"state": kept, "__doc__": kind.__doc__, **more})
    return made(fn)  # type: ignore[no-any-return]


def _added(
    at: Adding,
    keys: tuple[str, ...],
    fn: KeyedProcess,
    schema: pa.Schema,
    unbounded: bool,
    method: str,
) -> Edge:
    node = Stateful(
        schema=schema,
        keys=(keys,),
        what=ProcessSpec(("row",), fn, type(fn).state()),
        unbounded=unbounded,
        **at.common(),
    )
    return at.add(node, method)


def refuse_unkeyed(at: Adding, method: str, fn: object = None, *, windowed: bool = False) -> Edge:
    """State belongs to a key, and so do timers: report that there is none.

    `windowed`: windows without a key have this method.
    """
    timers = isinstance(fn, KeyedProcess) and type(fn).timed()
    keeps = not isinstance(fn, KeyedProcess) or bool(type(fn).values)
    does = [*(["sets timers"] if timers else []), *(["keeps state"] if keeps else [])]
    what = f"{' and '.join(does) or 'hands over rows'} by key"
    of_key = "whose state it is" if keeps else "whose timers they are"
    asks = of_key if does else "which rows belong together"
    instead = "" if does else "; or use map or flat_map, which need no key"
    instead = f"; or, for all rows, .window(...).{method}(...)" if windowed else instead
    at.report(
        PlanError(
            "HR-PROCESS-002" if timers else "HR-PROCESS-001",
            f"{method} {what}, but {at.draft.name_of(at.edge)!r} has no key",
            f'Say {asks}: .key_by("column").{method}(...){instead}.',
        )
    )
    stand_in = value(str)
    return _added(
        at, (), _made(MapWithState, lambda row, state: None, stand_in), UNKNOWN, True, method
    )
