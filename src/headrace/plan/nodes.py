"""The nodes of a program: frozen values that say what, never how.

A node knows its name, where the user wrote it, what it reads (edges to ports of other
nodes) and the schema of what it emits. Behaviour lives elsewhere: checks in `checks.py`, rewrites
in `rewrite.py`, running in `ops/` and `task/`. Names are identity: state, metrics,
errors and evolution all go by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.callables import PyFunction
from headrace.clock import MIN_TIME
from headrace.errors import Site
from headrace.expr import Expr
from headrace.ops.contract import ChunkSpec, Operator, Place, Spec
from headrace.ops.shedding import Shedding
from headrace.ops.watermarks import Bounded, EventTime, Strategy

OUT, LATE = "out", "late"

DEAD_SCHEMA = pa.schema(
    [
        ("input", pa.string()),
        ("split", pa.string()),
        ("offset", pa.int64()),
        ("place", pa.string()),
        ("step", pa.string()),
        ("error", pa.string()),
        ("traceback", pa.string()),
        ("record", pa.binary()),
        ("epoch", pa.int64()),
    ]
)

# What the job's own output for dead letters has besides: what sends a letter again.
LETTER_SCHEMA = pa.schema(
    [
        *DEAD_SCHEMA,
        ("at", pa.int64()),  # the clock of its epoch
        ("enters", pa.string()),  # the step at which its row goes in; null if it cannot
        ("port", pa.int32()),
        ("row", pa.binary()),
    ]
)


def late_port(index: int) -> str:
    """The port at which the late rows of an input leave: "late", "late_2", ..."""
    return LATE if index == 0 else f"{LATE}_{index + 1}"


@dataclass(frozen=True, slots=True)
class Edge:
    """One output port of a node."""

    node: Node
    port: str = OUT

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows on this port: late rows are as the step got them."""
        if self.port == OUT:
            return self.node.schema
        origin = self.origin
        return self.node.sides[self.port] if origin is None else origin.schema

    @property
    def origin(self) -> Edge | None:
        """The input whose late rows leave here; None if it is no port of late rows."""
        if self.port in self.node.sides:
            return None
        ports = [late_port(i) for i in range(len(self.node.inputs))]
        return self.node.inputs[ports.index(self.port)] if self.port in ports else None


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    name: str
    schema: pa.Schema
    inputs: tuple[Edge, ...] = ()
    timed: bool = False  # rows carry an event time
    site: Site | None = None
    was: str | None = None  # the step's name in an earlier version of the program
    derived: str | None = None  # the name its place gives it; None if the user named it
    sides: Mapping[str, pa.Schema] = field(default_factory=dict)  # columns of side outputs

    @property
    def stateful(self) -> bool:
        return False


@dataclass(frozen=True, kw_only=True, eq=False)
class Read(Node):
    """An input. `schema` is what flows on; `declared` all that the input has, if it has more."""

    uri: Any  # "log:topic", "files:path", ..., or a source made in the program
    declared: pa.Schema | None = None
    guessed: bool = False  # the columns: from the values of the input, declared by nobody
    time: EventTime | None = None
    watermark: Strategy = Bounded(0)  # noqa: RUF009  a value
    idle: int | None = None
    max_skew: int | None = None
    align: int | None = None  # how far its splits may run ahead of the slowest aligned one
    shed: Shedding | None = None
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def weight(self) -> str | None:
        """The column that says how many records a row stands for, if a step reads it."""
        name = None if self.shed is None else self.shed.weight
        return name if name in self.schema.names else None

    def without_weight(self, schema: pa.Schema) -> pa.Schema:
        """The columns that the input itself has."""
        name = None if self.shed is None else self.shed.weight
        return pa.schema([field for field in schema if field.name != name])


@dataclass(frozen=True, kw_only=True, eq=False)
class Dead(Node):
    """The job's dead letters, as a stream: only expressions and outputs may follow."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Select(Node):
    """Filter and project by expressions; `columns` None keeps all."""

    where: Expr | None = None
    columns: tuple[tuple[str, Expr], ...] | None = None
    finishes: bool = False  # the step before it: to the user both are one, of that one's name


def step_of(node: Node) -> Node:
    """The step that the user wrote: of a projection that finishes another, that one."""
    finishes = isinstance(node, Select) and node.finishes
    return node.inputs[0].node if finishes else node


@dataclass(frozen=True, kw_only=True, eq=False)
class Python(Node):
    """A user's function over the rows of a chunk."""

    kind: str  # "map", "flat_map", "filter", "tap", "batches"
    function: PyFunction


@dataclass(frozen=True, kw_only=True, eq=False)
class Chunks(Node):
    """A step without state that brings its own meaning, over chunks: a sample, outside calls."""

    what: ChunkSpec


@dataclass(frozen=True, kw_only=True, eq=False)
class SelectChain(Node):
    """Selects fused by `rewrite.py` into one compiled pass; the last one names it."""

    steps: tuple[Select, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class PythonChain(Node):
    """Row functions (not "batches") fused by `rewrite.py` into one pass over the rows."""

    steps: tuple[Python, ...]


def parts_of(node: Node) -> tuple[Node, ...]:
    """The steps of the user's that a node is: those of a chain, or itself."""
    return node.steps if isinstance(node, SelectChain | PythonChain) else (node,)


def first_of(node: Node) -> Node:
    """The step that gets the rows which come to the node."""
    return parts_of(node)[0]


@dataclass(frozen=True, kw_only=True, eq=False)
class Union(Node):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Stateful(Node):
    """A step with state per key; `keys` holds the key columns of each input."""

    what: Spec  # what it does, stores and says of itself
    keys: tuple[tuple[str, ...], ...]
    processing: bool = False  # it goes by processing time: its watermark is the clock
    unbounded: bool = False  # the user accepts state for every key ever seen
    broadcast: tuple[int, ...] = ()  # inputs whose rows go to every task
    since: str | None = None  # from when aggregates count that its state does not have
    was_fields: Mapping[str, str] = field(default_factory=dict)  # aggregates' names before

    @property
    def stateful(self) -> bool:
        return True

    @property
    def place(self) -> Place:
        inputs = tuple(edge.schema for edge in self.inputs)
        return Place(self.keys, inputs, self.schema, self.timed, self.broadcast)

    def operator(self, over: int = MIN_TIME) -> Operator:
        """A fresh operator for one task and one epoch; for `over` see `Place`."""
        return self.what.operator(replace(self.place, over=over))


@dataclass(frozen=True, kw_only=True, eq=False)
class Write(Node):
    uri: Any  # a text, or a user's own output: its text says its kind and place
    options: Mapping[str, Any] = field(default_factory=dict)


def is_end(node: Node) -> bool:
    """Whether rows may end here: at an output, or where a function sees them."""
    return isinstance(node, Write) or (isinstance(node, Python) and node.kind == "tap")


def linked(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, each after those it reads from, reading from one another."""
    done: dict[str, Node] = {}
    for node in nodes:
        inputs = tuple(Edge(done[e.node.name], e.port) for e in node.inputs)
        moved = any(a.node is not b.node for a, b in zip(inputs, node.inputs, strict=True))
        done[node.name] = replace(node, inputs=inputs) if moved else node
    return tuple(done.values())
