"""Keyed streams: rows that belong together by a key, and what can be kept for each key.

Steps here keep state for every key ever seen unless they work on windows, so those that do
must be told `unbounded=True`: the plan refuses them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.api import (
    connected,
    patterns,
    stateful,
    stream,
    windowed,
)
from headrace.api.folding import accumulator, reduced
from headrace.api.joining import Joining
from headrace.api.loops import Looping
from headrace.api.operators import Operators
from headrace.api.step_builder import Adding
from headrace.api.windowing import cut
from headrace.clock import Duration
from headrace.errors import call_site
from headrace.hints import UnknownNameError, named_arguments, no_such_name
from headrace.ops.agg.named import Aggregate
from headrace.ops.process.keyed import KeyedProcess
from headrace.ops.running.spec import Folding, RunningAggregates, RunningFold
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.trigger_base import Trigger
from headrace.plan.aggs import clashes, typed_aggs
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Edge, Stateful
from headrace.schema import SchemaLike


@named_arguments
class KeyedStream(Operators, Joining, Looping):
    """A stream and the columns that are its key."""

    def __init__(self, draft: Draft, edge: Edge, keys: tuple[str, ...]) -> None:
        self._draft, self._edge, self._keys = draft, edge, keys

    @property
    def keys(self) -> tuple[str, ...]:
        return self._keys

    @property
    def schema(self) -> pa.Schema:
        return self._edge.schema

    @property
    def unkeyed(self) -> stream.Stream:
        """The same rows without the key."""
        return stream.Stream(self._draft, self._edge)

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
    ) -> windowed.WindowedStream:
        """Cut each key's rows into windows: `window(hr.tumbling("5s"))`.

        `time` is "event", which is usual, or "processing". `trigger` says when a window shows
        its result besides when it is over, `lateness` how long it then waits for late rows,
        `evict` which of its rows are seen, `mode` whether a firing shows all ("replace"), what
        is new ("delta"), or takes the old result back first ("retract"). `info` adds the
        columns `pane`, `timing` and `final`; by default where a window may fire more than once.
        """
        at = Adding(self._draft, self._edge)
        windows = cut(at, window, time, trigger, lateness, evict, mode, info, may_lose)
        return windowed.WindowedStream(self._draft, self._edge, self._keys, windows)

    def agg(
        self,
        *,
        unbounded: bool = False,
        name: str | Aggregate | None = None,
        was: str | Aggregate | None = None,
        **aggs: Aggregate,
    ) -> stream.Stream:
        """Running aggregates: each row, and what the aggregates of its key are after it."""
        given, before, wanted = windowed.split_names(name, was, aggs)
        at = Adding(self._draft, self._edge, given, before)
        made, fields = typed_aggs(self._draft, wanted, at.schema, at.site)
        for problem in clashes(self._keys, fields, "part of the key"):
            at.report(problem)
        new = {f.name: f for f in fields}
        kept = [new.get(f.name, f) for f in at.schema]
        added = [f for f in fields if f.name not in at.schema.names]
        schema = pa.schema([*kept, *added]) if len(at.schema) else UNKNOWN
        what = RunningAggregates(made)
        node = Stateful(
            what=what, schema=schema, keys=(self._keys,), unbounded=unbounded, **at.common()
        )
        return stream.Stream(self._draft, at.add(node, "agg"))

    def reduce(
        self,
        fn: Callable[[Any, Any], Any],
        *,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.Stream:
        """Fold each key's rows into one row, fn(row, row) -> row; gives it after each row."""
        at = Adding(self._draft, self._edge, name, was)
        function, value = reduced(at, fn, self._keys)
        node = Stateful(
            what=RunningFold(Folding(function, None, value)),
            schema=at.schema,
            keys=(self._keys,),
            unbounded=unbounded,
            **at.common(),
        )
        return stream.Stream(self._draft, at.add(node, "reduce"))

    def fold(
        self,
        zero: Any,
        fn: Callable[[Any, Any], Any],
        *,
        schema: SchemaLike | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.Stream:
        """Fold each key's rows into a value, fn(value, row) -> value; gives it after each row.

        `zero` is a value, or a function that makes one. A value that is not a record is one
        column, `value`.
        """
        at = Adding(self._draft, self._edge, name, was)
        function, start, value = accumulator(at, zero, fn, schema)
        for problem in clashes(self._keys, list(value), "part of the key"):
            at.report(problem)
        keys = [at.schema.field(k) for k in self._keys if k in at.schema.names]
        known = len(value) and len(keys) == len(self._keys)
        rest = [f for f in value if f.name not in self._keys]
        node = Stateful(
            what=RunningFold(Folding(function, start, value)),
            schema=pa.schema([*keys, *rest]) if known else UNKNOWN,
            keys=(self._keys,),
            unbounded=unbounded,
            **at.common(),
        )
        return stream.Stream(self._draft, at.add(node, "fold"))

    def process(
        self,
        fn: KeyedProcess,
        *,
        output: SchemaLike | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.ProcessResult:
        """Hand each key's rows, in order, to a process function that may keep values."""
        return connected.ConnectedStreams(
            self._draft, (self._edge,), (self._keys,), (connected.input_name(self.unkeyed),)
        ).process(fn, output=output, unbounded=unbounded, name=name, was=was)

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
    ) -> stream.Stream:
        """fn(row, state) -> (row to give, new state) for each row; None forgets the state.

        `state` is its type, which starts with None, or a `hr.value` with a default.
        """
        at = Adding(self._draft, self._edge, name, was)
        edge = stateful.map_with_state(at, self._keys, False, fn, state, output, unbounded, ttl)
        return stream.Stream(self._draft, edge)

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
    ) -> stream.Stream:
        """fn(row, state) -> (any number of rows to give, new state); see `map_with_state`."""
        at = Adding(self._draft, self._edge, name, was)
        edge = stateful.map_with_state(at, self._keys, True, fn, state, output, unbounded, ttl)
        return stream.Stream(self._draft, edge)

    def update_state_by_key(
        self,
        fn: Callable[[list[Any], Any], Any],
        *,
        schema: SchemaLike,
        unbounded: bool = False,
        ttl: Duration | None = None,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.Stream:
        """fn(rows, state) -> new state, once for each key that has rows in a batch.

        Gives the key and its new state; None forgets it, and gives nothing. How rows are cut
        into batches is not promised: what `fn` makes of them should not depend on it.
        """
        at = Adding(self._draft, self._edge, name, was)
        edge = stateful.update_state_by_key(at, self._keys, fn, schema, unbounded, ttl)
        return stream.Stream(self._draft, edge)

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

        `select` says what is told of a match: columns over its rows, as in {"sum": "a.x + b.x"},
        or a function of the match, whose rows `output` describes; else the rows by name. With
        {"name": pattern} there are several and a column `pattern`. `rules` is a control stream
        that brings patterns while the job runs; `timeouts` keeps what was never complete.
        """
        at = Adding(self._draft, self._edge, name, was)
        return patterns.match_patterns(
            at, self._keys, pattern, select, output, rules, timeouts=timeouts, unbounded=unbounded
        )

    def connect(
        self,
        other: KeyedStream | connected.BroadcastStream,
        *,
        names: tuple[str, str] | None = None,
    ) -> connected.ConnectedStreams:
        """This stream and another, key by key, for a process function with two inputs."""
        return connected.connect_streams((self, other), None, names)

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
