"""Graphs: the edges of a stream, and what is computed of them.

On a keyed stream each key is a graph of its own; otherwise all edges are one graph, in one task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa

from headrace.api.handles import StepBuilder, StreamT, TimedT
from headrace.chunk import plain_type
from headrace.errors import PlanError
from headrace.expr import col
from headrace.hints import named_arguments, no_such_name
from headrace.ops.agg.named import collect
from headrace.ops.agg.named import max as greatest
from headrace.ops.graph.components import COMPONENT, Components
from headrace.ops.graph.degrees import DEGREE, VERTICES, DegreeDistribution, Degrees
from headrace.ops.graph.edges import CHANGE, VERTEX, EdgeColumns, GraphSpec, can_be_vertex
from headrace.ops.graph.in_windows import (
    LISTS,
    SEED,
    WEIGHT,
    Seeded,
    Sparsifier,
    WindowTriangles,
)
from headrace.ops.graph.sampled_triangles import ERROR, TRIANGLES, SampledTriangles
from headrace.ops.graph.spanner import Spanner
from headrace.ops.tables import free_name
from headrace.plan.columns import clashes
from headrace.plan.draft import UNKNOWN, Draft
from headrace.plan.nodes import Edge, Node, step_of
from headrace.schema import ddl_type

_LONG = pa.int64()
_SMALLEST = 10  # edges of a sample: of three or fewer nothing can be estimated


def edges_of(step: StepBuilder, keys: tuple[str, ...], src: str, dst: str) -> Edge:
    """The rows as edges: the key and both vertices, the smaller first."""
    before = len(step.draft.problems)
    _check(step, keys, src, dst)
    if len(step.draft.problems) > before or not len(step.schema):
        return step.chunks(EdgeColumns(src, dst), UNKNOWN)
    names = list(dict.fromkeys([*keys, src, dst]))
    edge = StepBuilder(step.draft, step.edge).columns("select", {n: col(n) for n in names})
    after = StepBuilder(step.draft, edge, step.name, step.was)
    plain = {n: plain_type(edge.schema.field(n).type) for n in (src, dst)}
    fields = [f if f.name in keys else pa.field(f.name, plain[f.name]) for f in edge.schema]
    return after.chunks(EdgeColumns(src, dst), pa.schema(fields))


def _check(step: StepBuilder, keys: tuple[str, ...], src: str, dst: str) -> None:
    schema = step.schema
    step.require_columns([src, dst])
    if src == dst or src in keys or dst in keys:
        what = "the same column twice" if src == dst else "a column of the key as a vertex"
        hint = 'Name two other columns: edges("src", "dst"); select(v="k", ...) copies one.'
        step.report(PlanError("HR-GRAPH-002", f"edges({src!r}, {dst!r}) has {what}", hint))
        return
    if any(n not in schema.names for n in (src, dst)):
        return
    kinds = [plain_type(schema.field(n).type) for n in (src, dst)]
    for name, kind in zip((src, dst), kinds, strict=True):
        if not can_be_vertex(kind) and not pa.types.is_null(kind):
            step.report(
                PlanError(
                    "HR-GRAPH-003",
                    f"the vertex {name!r} is {ddl_type(kind)}",
                    "A vertex is a text or a whole number: cast it, or make a text of its parts.",
                )
            )
            return
    if kinds[0] != kinds[1]:
        both = f"{ddl_type(kinds[0])} and {ddl_type(kinds[1])}"
        whole = all(pa.types.is_integer(kind) for kind in kinds)
        wide = max(kinds, key=lambda k: k.bit_width) if whole else pa.string()
        narrow = src if kinds[0] != wide else dst
        hint = f'Cast to the wider: with_columns({narrow}="cast({narrow} as {ddl_type(wide)})").'
        step.report(PlanError("HR-GRAPH-003", f"the vertices {src!r} and {dst!r} are {both}", hint))
    change = schema.field(CHANGE.name).type if CHANGE.name in schema.names else None
    if change == CHANGE.type:
        step.report(
            PlanError(
                "HR-GRAPH-004",
                "edges cannot be taken back, but the rows are changes: the column 'change' says "
                "which are retracted",
                "Take the edges before they become changes; or, if nothing is retracted, rename "
                "or drop the column.",
            )
        )


@named_arguments
class EdgeStream(Generic[StreamT, TimedT]):
    """The edges of a graph, or of one for each key; what is computed of them is a stream."""

    def __init__(
        self,
        draft: Draft,
        edge: Edge,
        keys: tuple[str, ...],
        columns: tuple[str, str],
        kinds: tuple[type[StreamT], type[TimedT]],
    ) -> None:
        self._draft, self._edge, self._keys = draft, edge, keys
        self._columns, self._kinds = columns, kinds

    def components(
        self, *, unbounded: bool = False, name: str | None = None, was: str | None = None
    ) -> StreamT:
        """The connected component of each vertex, as changes: `vertex`, `component`, `change`.

        A component is called by its smallest vertex. After each batch, "-" is the component that
        a vertex was in and "+" the one it is in now.
        """
        return self._running(Components, {VERTEX: None, COMPONENT: None}, unbounded, name, was)

    def degrees(
        self, *, unbounded: bool = False, name: str | None = None, was: str | None = None
    ) -> StreamT:
        """How many neighbours each vertex has, as changes: `vertex`, `degree`, `change`."""
        return self._running(Degrees, {VERTEX: None, DEGREE: _LONG}, unbounded, name, was)

    def degree_distribution(
        self, *, unbounded: bool = False, name: str | None = None, was: str | None = None
    ) -> StreamT:
        """How many vertices have each degree, as changes: `degree`, `vertices`, `change`."""
        columns = {DEGREE: _LONG, VERTICES: _LONG}
        return self._running(DegreeDistribution, columns, unbounded, name, was)

    def triangles(
        self,
        window: Any = None,
        *,
        sample: int | None = None,
        seed: int = 0,
        by_vertex: bool = False,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
        **windowing: Any,
    ) -> TimedT:
        """How many triangles there are: exactly in each window, or estimated of all edges so far.

        `triangles(hr.tumbling("1m"))` counts those of a window's distinct edges, as `triangles`;
        with `by_vertex` there is a row for each `vertex`. It takes what `window` takes besides.
        `triangles(sample=10_000)` stores so many edges, chosen by `seed`, and emits an estimate
        without bias and its standard `error`, as changes; exact while fewer edges have come.
        """
        step = StepBuilder(self._draft, self._edge, name, was)
        if (window is None) == (sample is None):
            hint = 'Write triangles(hr.tumbling("1m")), or triangles(sample=10_000).'
            step.report(PlanError("HR-GRAPH-005", "triangles needs a window or a sample", hint))
        if sample is None:
            return self._in_windows(step, "triangles", window, windowing, by_vertex)
        if by_vertex or windowing:
            what = "by_vertex" if by_vertex else next(iter(windowing))
            hint = "Count the triangles of windows, or leave it out."
            step.report(PlanError("HR-GRAPH-005", f"triangles(sample=) has no {what}=", hint))
        size = step.count(sample, "triangles(sample=)", "edges")
        seed = step.seed(seed, "triangles(sample=)")
        if size < _SMALLEST:
            hint = f"Choose at least {_SMALLEST}; the error falls as the sample grows."
            step.report(PlanError("HR-GRAPH-005", f"triangles(sample=) takes {size} edges", hint))
        columns = {TRIANGLES: pa.float64(), ERROR: pa.float64()}
        accepted = unbounded or not self._keys
        edge = self._added(step, SampledTriangles, columns, accepted, size=size, seed=seed)
        return self._kinds[1](self._draft, edge)

    def spanner(
        self, k: int, *, unbounded: bool = False, name: str | None = None, was: str | None = None
    ) -> StreamT:
        """Edges among which no distance is more than 2k - 1 times that in the whole graph.

        An edge is emitted when it is taken, and stays.
        """
        step = StepBuilder(self._draft, self._edge, name, was)
        columns = dict.fromkeys(self._columns)
        steps = step.count(k, "spanner", "steps")
        edge = self._added(step, Spanner, columns, unbounded, k=steps)
        return self._kinds[0](self._draft, edge)

    def sparsify(
        self,
        window: Any,
        *,
        error: float = 0.5,
        seed: int = 0,
        name: str | None = None,
        was: str | None = None,
        **windowing: Any,
    ) -> TimedT:
        """Few edges of each window, with a `weight`: cuts weigh what they do among all edges.

        To within `error`, for nearly all windows: the sum of the weights over a cut is between
        1 - error and 1 + error times the number of edges over it. It takes what `window` takes
        besides.
        """
        step = StepBuilder(self._draft, self._edge, name, was)
        if WEIGHT in self._columns:
            hint = f'Call the vertex otherwise: select(v="{WEIGHT}", ...).edges("v", ...).'
            fact = f"sparsify would make a second column {WEIGHT!r}: a vertex is called so"
            step.report(PlanError("HR-GRAPH-006", fact, hint))
        if not isinstance(error, float | int) or not 0 < error < 1:
            hint = "Choose a number between 0 and 1, such as 0.2."
            step.report(PlanError("HR-GRAPH-006", f"sparsify(error=) is {error!r}", hint))
            error = 0.5
        seed = step.seed(seed, "sparsify")
        return self._in_windows(step, "sparsify", window, windowing, False, float(error), seed)

    def _in_windows(
        self,
        step: StepBuilder,
        kind: str,
        window: Any,
        windowing: dict[str, Any],
        by_vertex: bool,
        error: float = 0.0,
        seed: int = 0,
    ) -> TimedT:
        """The edges of each window as lists, and a step that computes something of them."""
        if windowing.get("mode", "replace") not in ("replace", "retract"):
            fact = f"{kind} of a window is of all its edges, not of those that are new"
            step.report(PlanError("HR-GRAPH-007", fact, 'Leave mode="delta" out.'))
        edges, src, dst = self._edge, *self._columns
        used = (*self._keys, src, dst)
        lists, drawn = (free_name(LISTS[0], used), free_name(LISTS[1], used)), free_name(SEED, used)
        collected = {n: collect(col(c)) for n, c in zip(lists, self._columns, strict=True)}
        if kind == "sparsify" and len(edges.schema):
            before = StepBuilder(self._draft, edges, **step.part("seed"))
            schema = pa.schema([*edges.schema, pa.field(drawn, _LONG)])
            edges = before.chunks(Seeded(seed, drawn), schema)
            collected[drawn] = greatest(col(drawn))
        stream: Any = self._kinds[0](self._draft, edges)
        stream = stream.key_by(*self._keys) if self._keys else stream
        result = stream.window(window, **windowing).agg(**collected, **step.part("window"))
        windows, late_at = result._edge, step_of(result._edge.node)
        after = StepBuilder(self._draft, windows, step.name, step.was)
        bounds = [n for n in windows.schema.names if n not in collected]
        if not len(windows.schema) or not len(step.schema):
            edge = after.chunks(WindowTriangles(src, dst, lists, by_vertex), UNKNOWN)
            return self._late_at(edge, late_at)
        what: Any = WindowTriangles(src, dst, lists, by_vertex)
        vertex = step.schema.field(src).type
        added = [pa.field(VERTEX, vertex)] * by_vertex + [pa.field(TRIANGLES, _LONG)]
        if kind == "sparsify":
            known = tuple(n for n in bounds if n in (*self._keys, "window_start", "window_end"))
            what = Sparsifier(src, dst, lists, drawn, error, known)
            ends = [pa.field(n, vertex) for n in self._columns]
            added = [*ends, pa.field(WEIGHT, pa.float64())]
        after.report(*clashes(bounds, added, "part of every window's result"))
        fields = [windows.schema.field(n) for n in bounds]
        schema = pa.schema([*fields, *added])
        return self._late_at(after.chunks(what, schema), late_at)

    def _late_at(self, edge: Edge, window: Node) -> TimedT:
        """A result whose late rows are those of the window before it, as edges."""
        result: Any = self._kinds[1]
        seeded = window.inputs[0] != self._edge
        columns = self._edge.schema.names if seeded else ()
        found: TimedT = result(self._draft, edge, window, columns)
        return found

    def _running(
        self,
        kind: Any,
        columns: dict[str, pa.DataType | None],
        unbounded: bool,
        name: str | None,
        was: str | None,
    ) -> StreamT:
        step = StepBuilder(self._draft, self._edge, name, was)
        return self._kinds[0](self._draft, self._added(step, kind, columns, unbounded))

    def _added(
        self,
        step: StepBuilder,
        kind: Any,
        columns: dict[str, Any],
        unbounded: bool,
        **more: Any,
    ) -> Edge:
        """A step with state; None is the type of vertices."""
        kept = not len(step.schema)
        vertex = pa.null() if kept else step.schema.field(self._columns[0]).type
        added = [pa.field(n, vertex if t is None else t) for n, t in columns.items()]
        if kind.changes:
            added.append(CHANGE)
        what: GraphSpec = kind(*self._columns, ddl_type(vertex), **more)
        step.report(*clashes(self._keys, added, "part of the key"))
        schema = UNKNOWN
        if not kept:
            schema = pa.schema([*(step.schema.field(k) for k in self._keys), *added])
        return step.stateful(what, (self._keys,), schema, unbounded=unbounded)

    def __repr__(self) -> str:
        ends = " and ".join(self._columns)
        return f"<EdgeStream {self._draft.name_of(self._edge)!r} between {ends}>"

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            raise no_such_name("a stream of edges", method, dir(EdgeStream))
