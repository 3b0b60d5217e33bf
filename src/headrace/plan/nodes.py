"""The nodes of a program: frozen values that say what, never how.

A node knows its name, where the user wrote it, what it reads (edges to ports of other
nodes) and the schema it gives. Behaviour lives elsewhere: checks in `check.py`, rewrites
in `rewrite.py`, running in `ops/` and `task/`. Names are identity: state, metrics,
errors and evolution all go by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from headrace.errors import Site
from headrace.expr import Expr
from headrace.ops.agg.named import Aggregate
from headrace.ops.contract import ChunkSpec, Spec
from headrace.ops.watermarks import Bounded, Ingestion, Strategy
from headrace.ops.window.aligned import Window
from headrace.ops.window.evictors import Evictor
from headrace.ops.window.windowing import Windowing

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


@dataclass(frozen=True, slots=True, eq=False)
class PyFunction:
    """A user's Python function, and why it runs as Python."""

    fn: Callable[..., Any]
    site: Site | None
    reason: str = "a Python function"


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
    time: str | Ingestion | None = None
    watermark: Strategy = Bounded(0)  # noqa: RUF009  a value
    idle: int | None = None
    max_skew: int | None = None
    align: int | None = None  # how far its splits may run ahead of the slowest aligned one
    format: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, eq=False)
class Dead(Node):
    """The job's dead letters, as a stream: only expressions and outputs may follow."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Select(Node):
    """Filter and project by expressions; `columns` None keeps all."""

    where: Expr | None = None
    columns: tuple[tuple[str, Expr], ...] | None = None


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


@dataclass(frozen=True, kw_only=True, eq=False)
class Union(Node):
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class Stateful(Node):
    """A node that keeps state per key; `keys` holds the key columns of each input."""

    keys: tuple[tuple[str, ...], ...]
    unbounded: bool = False  # the user accepts state for every key ever seen
    broadcast: tuple[int, ...] = ()  # inputs whose rows go to every task

    @property
    def clocked(self) -> bool:
        """Whether it goes by processing time: its watermark is then the clock."""
        return False

    @property
    def stateful(self) -> bool:
        return True


@dataclass(frozen=True, kw_only=True, eq=False)
class Windowed(Stateful):
    """A node that computes something over windows."""

    processing: bool = False  # its windows are of processing time

    @property
    def clocked(self) -> bool:
        return self.processing


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowAgg(Windowed):
    """Named aggregates over tumbling or sliding windows that fire once, from shared panes."""

    window: Window
    aggs: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class AnyWindow(Windowed):
    """Windows of time of every kind; `function` is None for named aggregates."""

    windowing: Windowing
    aggs: tuple[tuple[str, Aggregate], ...] = ()
    function: PyFunction | None = None
    zero: PyFunction | None = None
    value: pa.Schema = field(default_factory=lambda: pa.schema([]))
    process: bool = False  # the function sees all rows of a window at once
    evictor: Evictor | None = None
    extras: tuple[tuple[str, Expr], ...] = ()  # columns that trigger, assigner or evictor read


@dataclass(frozen=True, kw_only=True, eq=False)
class RowWindow(Windowed):
    """Windows that are bounded by rows, not by time."""

    window: Any  # a value of ops/window/by_rows.py
    aggs: tuple[tuple[str, Aggregate], ...] = ()
    function: PyFunction | None = None
    zero: PyFunction | None = None
    value: pa.Schema = field(default_factory=lambda: pa.schema([]))
    process: bool = False
    extras: tuple[tuple[str, Expr], ...] = ()


@dataclass(frozen=True, kw_only=True, eq=False)
class WindowFold(Windowed):
    """`reduce` (zero is None, rows fold into a row) or `fold` over each window."""

    window: Window
    function: PyFunction
    zero: PyFunction | None = None  # makes a fresh start value
    value: pa.Schema = field(default_factory=lambda: pa.schema([]))  # the accumulator's columns


@dataclass(frozen=True, kw_only=True, eq=False)
class Rolling(Stateful):
    """Running aggregates: one row out for each row in, of exactly the columns of `schema`.

    The input may carry further columns (the arguments that `rewrite.py` projected).
    """

    aggs: tuple[tuple[str, Aggregate], ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class Fold(Stateful):
    """Running `reduce` (zero is None) or `fold` per key: one row out for each row in."""

    function: PyFunction
    zero: PyFunction | None = None
    value: pa.Schema = field(default_factory=lambda: pa.schema([]))


@dataclass(frozen=True, kw_only=True, eq=False)
class Process(Stateful):
    """A user's keyed process function over named inputs."""

    names: tuple[str, ...]  # of the inputs, as the function sees them
    function: Any  # an instance of the user's KeyedProcess
    state: pa.Schema  # its declared values


@dataclass(frozen=True, kw_only=True, eq=False)
class Apply(Stateful):
    """An operator that brings its own meaning: a join, deduplication, a pattern, ..."""

    what: Spec
    processing: bool = False  # it goes by processing time

    @property
    def clocked(self) -> bool:
        return self.processing


@dataclass(frozen=True, kw_only=True, eq=False)
class Write(Node):
    uri: str
    options: Mapping[str, Any] = field(default_factory=dict)
