"""Handles: immutable values that stand for the rows, or the table, of a place in a program; and
the step that is added after one, which is what every fluent method ends in.

Methods that streams with a key and without share are written in mixin classes of their own.
What these return are streams again, which are defined later: here they are type variables.
A `StepBuilder` knows where in the program and where in the user's file the step is written. It
returns edges, not streams; a mistake is reported in the draft and leaves an unknown schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Generic, TypeVar

import pyarrow as pa

from headrace.callables import PyFunction, is_lambda, site_of
from headrace.clock import Duration, millis
from headrace.errors import PlanError, call_site
from headrace.expr import Expr, Untraceable, as_expr
from headrace.ops.agg.named import bare_sql
from headrace.ops.agg.order import is_sortable
from headrace.ops.contract import ChunkSpec, Spec
from headrace.ops.join.sides import GONE
from headrace.plan import columns as cols
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Chunks, Edge, Node, Python, Select, Stateful
from headrace.plan.signature import check_takes
from headrace.schema import ddl_type

PLAIN = "a Python function"
Names = str | Sequence[str]


class Handle:
    """A job's draft, and the port of a step whose rows it stands for."""

    _keys: tuple[str, ...] = ()

    def __init__(self, draft: Draft, edge: Edge) -> None:
        self._draft, self._edge = draft, edge

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows, as far as they are known."""
        return self._edge.schema

    def _step(self, name: str | None = None, was: str | None = None) -> StepBuilder:
        """A step to be added after these rows."""
        return StepBuilder(self._draft, self._edge, name, was)


class AnyStream(Handle):
    """A stream, with a key or without."""


class AnyTable(Handle):
    """The latest row of each key of a stream."""

    def __init__(
        self, draft: Draft, edge: Edge, keys: tuple[str, ...], deletes: bool, unbounded: bool
    ) -> None:
        super().__init__(draft, edge)
        self._keys, self._deletes, self._unbounded = keys, deletes, unbounded

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of the key columns."""
        return self._keys

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""
        return pa.schema([f for f in self._edge.schema if f.name != GONE])

    @property
    def _deleted(self) -> str | None:
        """The column that marks the end of a key, if rows can."""
        return GONE if self._deletes else None


class AnyBroadcast(Handle):
    """A control stream: each of its rows reaches every task."""


StreamT = TypeVar("StreamT", bound=AnyStream)
TimedT = TypeVar("TimedT", bound=AnyStream)
JoinT = TypeVar("JoinT", bound=AnyStream)
TableT = TypeVar("TableT", bound=AnyTable)


class Results(AnyStream, Generic[StreamT, TimedT, JoinT, TableT]):
    """A stream that knows the classes of what its methods return."""

    @property
    def _kinds(self) -> tuple[type[StreamT], type[TimedT], type[JoinT], type[TableT]]:
        """Of a stream, of a result that has late rows, of a join's, and of a table."""
        raise NotImplementedError

    def _stream(self, edge: Edge) -> StreamT:
        return self._kinds[0](self._draft, edge)

    def _timed(self, edge: Edge) -> TimedT:
        return self._kinds[1](self._draft, edge)

    def _joined(self, edge: Edge) -> JoinT:
        return self._kinds[2](self._draft, edge)


def other_job() -> PlanError:
    return PlanError(
        "HR-PLAN-020",
        "streams of two jobs cannot meet",
        "Read both inputs with the same job, or pass data between jobs through a topic.",
    )


class StepBuilder:
    """One step that is about to be added after an edge, under a name or a derived one."""

    def __init__(
        self, draft: Draft, edge: Edge, name: str | None = None, was: str | None = None
    ) -> None:
        self.draft, self.edge, self.name, self.was = draft, edge, name, was
        self.site = call_site()

    def part(self, part: str) -> dict[str, str | None]:
        """What one of the steps that an operator consists of is called, and was."""
        named = {"name": self.name, "was": self.was}
        return {key: f"{name} {part}" if name else None for key, name in named.items()}

    @property
    def schema(self) -> pa.Schema:
        return self.edge.schema

    def common(self) -> dict[str, Any]:
        """The fields that every node after this edge shares."""
        return {
            "name": "",
            "inputs": (self.edge,),
            "timed": self.edge.node.timed,
            "site": self.site,
            "was": self.was,
        }

    def add(self, node: Node, kind: str, place: str = "") -> Edge:
        return Edge(self.draft.add(node, chosen=self.name, kind=kind, place=place))

    def stateful(
        self,
        what: Spec,
        keys: tuple[tuple[str, ...], ...],
        schema: pa.Schema,
        kind: str | None = None,
        **more: Any,
    ) -> Edge:
        """A step with state; `keys` are the key columns of each input."""
        fields = {**self.common(), **more}
        return self.add(Stateful(what=what, keys=keys, schema=schema, **fields), kind or what.kind)

    def chunks(self, what: ChunkSpec, schema: pa.Schema) -> Edge:
        """A step without state that has its own operator."""
        return self.add(Chunks(what=what, schema=schema, **self.common()), what.kind)

    def attempt(self, schema: Callable[[], pa.Schema]) -> pa.Schema:
        """A schema; not known when working it out shows a problem."""
        with self.draft.attempt(self.site):
            return schema()
        return UNKNOWN

    def report(self, *problems: PlanError) -> None:
        for problem in problems:
            self.draft.report(problem, self.site)

    def select(
        self, kind: str, where: Expr | None, columns: cols.Typed | None, place: str = ""
    ) -> Edge:
        schema = self.schema if columns is None else columns.schema
        exprs = columns.columns if columns is not None else None
        node = Select(schema=schema, where=where, columns=exprs, **self.common())
        return self.add(node, kind, place)

    def columns(self, kind: str, specs: Mapping[str, object]) -> Edge:
        """A projection; what is not known before it is not known after it."""
        if len(self.schema) == 0:
            return self.select(kind, None, cols.Typed((), UNKNOWN))
        if not specs:
            self.report(PlanError("HR-PLAN-021", f"{kind} leaves no columns", "Keep at least one."))
        return self.select(kind, None, cols.typed(self.draft, specs, self.schema, self.site))

    def python(
        self, kind: str, fn: Callable[..., Any], schema: pa.Schema, reason: str = PLAIN
    ) -> Edge:
        function = PyFunction(fn, site_of(fn), reason)
        node = Python(schema=schema, kind=kind, function=function, **self.common())
        return self.add(node, "map_batches" if kind == "batches" else kind)

    def function(
        self,
        kind: str,
        fn: Callable[..., Any],
        schema: Callable[[], pa.Schema],
        reason: str = PLAIN,
    ) -> Edge:
        """A Python step whose function is checked first."""

        def checked() -> pa.Schema:
            check_takes(fn, 1, kind)
            return schema()

        output = self.attempt(checked)
        return self.python("batches" if kind == "map_batches" else kind, fn, output, reason)

    def filter(self, condition: object) -> Edge:
        """A filter by an expression if it is one, else by a Python function."""
        reason = PLAIN
        if is_lambda(condition) and len(self.schema):
            try:
                as_expr(condition, self.schema)
            except Untraceable as why:
                reason = why.reason
            except PlanError:
                reason = ""  # an expression, with a mistake that is reported below
            else:
                reason = ""
        if callable(condition) and not isinstance(condition, Expr) and reason:
            return self.function("filter", condition, lambda: self.schema, reason)
        return self.select("where", self.condition(condition, "where"), None)

    def condition(self, spec: object, what: str) -> Expr | None:
        """A yes-or-no expression; None when it is reported to be wrong."""
        expr = cols.expression(self.draft, spec, self.schema, self.site)
        if expr is not None:
            cols.condition(self.draft, expr, self.schema, what, self.site)
        return expr

    def pick(self, names: Iterable[object]) -> dict[str, object]:
        """Columns named by text, or by expressions that carry a name."""
        picked: dict[str, object] = {}
        every: list[str] = []
        for spec in flat(names):
            expr = cols.expression(self.draft, spec, self.schema, self.site, named=True)
            if expr is None:
                picked[spec if isinstance(spec, str) else "?"] = cols.WRONG
            elif expr.name is None:
                self.report(_unnamed(expr))
                picked[expr.sql()] = cols.WRONG
            else:
                picked[expr.name] = expr
                every.append(expr.name)
        self.unique(every)
        return picked

    def named(
        self, columns: Iterable[Mapping[str, object] | object], exprs: Mapping[str, object]
    ) -> dict[str, object]:
        """Columns by their names: those of mappings and of `exprs`, and what carries its name."""
        every = [c if isinstance(c, Mapping) else self.pick([c]) for c in columns] + [exprs]
        names = [name for found in every for name in found]
        wrong = [name for name in names if not isinstance(name, str) or not name]
        for name in wrong:
            hint = "A name is a text that is not empty."
            self.report(PlanError("HR-PLAN-015", f"{name!r} cannot name a column", hint))
        self.unique([name for name in names if name not in wrong])
        return {n: spec for found in every for n, spec in found.items() if n not in wrong}

    def require_columns(self, names: Iterable[str]) -> None:
        """Report each of `names` that is not a column."""
        self.report(*cols.unknown(names, self.schema, self.site))

    def unique(self, names: Sequence[str]) -> None:
        """Report each name that would be there twice."""
        for name in sorted({n for n in names if names.count(n) > 1}):
            self.report(
                PlanError(
                    "HR-PLAN-015",
                    f"the column {name!r} would be there twice",
                    "Give each column its own name.",
                )
            )

    def keys(
        self, names: Sequence[object], exprs: Mapping[str, object]
    ) -> tuple[dict[str, object], tuple[str, ...]]:
        """The key's columns, and their names; one that is wrong keeps its place in the names."""
        if not flat(names) and not exprs:
            self.report(
                PlanError(
                    "HR-PLAN-013", "key_by names no column", 'Name at least one: key_by("area").'
                )
            )
        picked = self.pick(names)
        self.unique([*picked, *exprs])
        picked |= exprs
        return {n: e for n, e in picked.items() if e is not cols.WRONG}, tuple(picked)

    def key_fields(self, keys: Sequence[str]) -> list[pa.Field] | None:
        """The columns of the key; None where one of them is not known."""
        complete = all(k in self.schema.names for k in keys)
        return [self.schema.field(k) for k in keys] if complete else None

    def span(self, length: Duration, what: str) -> int:
        """A duration above zero; a stand-in where it is wrong."""
        with self.draft.attempt(self.site):
            duration = millis(length)
            if duration > 0:
                return duration
            raise PlanError(
                "HR-STREAM-001", f"{what} is {length!r}", "Choose a duration above zero."
            )
        return 1

    def seed(self, seed: object, what: str) -> int:
        """The seed of what is drawn; 0 if it is none, which is reported."""
        if isinstance(seed, int) and not isinstance(seed, bool) and 0 <= seed < 2**63:
            return seed
        hint = "Choose a whole number from 0 on."
        self.report(PlanError("HR-STREAM-005", f"{what} has the seed {seed!r}", hint))
        return 0

    def count(self, number: object, what: str, of: str = "rows") -> int:
        """A number of rows or rounds above zero; a stand-in where it is wrong."""
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
        self.report(
            PlanError(
                "HR-STREAM-002",
                f"{what} takes {number!r} {of}",
                f"Choose a whole number of {of} above zero.",
            )
        )
        return 1

    def comparable(self, name: str, what: str) -> None:
        """Report a column of lists or records, which have no order and cannot be compared."""
        kind = self.schema.field(name).type if name in self.schema.names else pa.null()
        if not is_sortable(kind) and not pa.types.is_null(kind):
            self.report(
                PlanError(
                    "HR-STREAM-003",
                    f"{what} {name!r}, which is {ddl_type(kind)}",
                    "Name columns of text, numbers, booleans, dates or times.",
                )
            )


def names_of(names: Names | None) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names or ())


def flat(names: Iterable[Any]) -> list[Any]:
    """Names as arguments, or in lists: select("a", "b") and select(["a", "b"]) are the same."""
    parts = (name if isinstance(name, list | tuple) else [name] for name in names)
    return list(chain.from_iterable(parts))


def not_in_order(code: str, running: str, because: str) -> PlanError:
    """Why the results of the running aggregate cannot be versions that event time puts in order."""
    return PlanError(
        code,
        f"the results of {running!r} are complete in the order of arrival, and {because}: rows "
        "out of order would make an older result the last",
        'Go by arrival: key_by("k").suppress("10s", time="processing"), top(10, by="n", '
        'each="k"); or say in_order=True where the input is read, if its rows are.',
    )


def _unnamed(expr: Expr) -> PlanError:
    return PlanError(
        "HR-PLAN-015",
        f"the column {bare_sql(expr.sql())!r} has no name",
        f'Name it: "{bare_sql(expr.sql())} as new_name", or by a keyword: new_name=...',
    )
