"""What a stateful operator is: plain functions over Arrow, the same in a test and on Spark.

An operator is made anew for each task and epoch from its node. It never sees Spark, files
or the wall clock: its state comes as keyed tables, its time as two watermarks and a clock
reading; to one that goes by processing time, the clock is its watermark. Within an epoch
all rows are applied under the watermark `before`; then the watermark moves to `after`, and
what is due fires. So an epoch's result does not depend on the order in which rows arrive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.state.table import KeyedTable, TableSpec

WINDOWS_SEEN = ("fired", "mute", "lost")  # firings, those without a result, ends unshown


@dataclass(frozen=True, slots=True)
class Fault:
    """A row on which the user's function raised; the runtime makes it a dead letter."""

    row: pa.Table  # one row, hidden columns included
    error: BaseException


@dataclass(slots=True)
class Step:
    """One epoch of one operator in one task: what goes in, and what came out."""

    inputs: Sequence[pa.Table | None]
    tables: dict[str, KeyedTable]
    before: int
    after: int
    clock: int
    epoch: int
    out: list[pa.Table] = field(default_factory=list)
    sides: dict[str, list[pa.Table]] = field(default_factory=dict)  # rows for side outputs
    faults: list[Fault] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)  # figures of the user's own
    windows: Counter[str] = field(default_factory=Counter)  # see `WINDOWS_SEEN`
    filtered: list[pa.Table] = field(default_factory=list)  # rows it left out, to be counted so
    next: int = MAX_TIME  # the watermark at which something is due even without input
    wake: int = MAX_TIME  # the clock at which something is due even without input
    newest: int = MIN_TIME  # the furthest watermark of its splits; tells most when they have ended
    homes: Sequence[int] = ()  # a key hash in each slot of this task: see `broadcast.py`


class Operator(Protocol):
    """The seam between the runtime and the meaning of one stateful node."""

    version: int

    def tables(self) -> tuple[TableSpec, ...]:
        """The state it keeps."""

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        """Mask of the rows that come too late under `watermark`; None when none can."""

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """What to send instead of `rows`: a pre-aggregate, made where the rows are."""

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        """Fold several prepared chunks of one task into one before they travel."""

    def step(self, step: Step) -> None:
        """Apply one epoch to the state and emit what is due."""


class Spec(Protocol):
    """What an `Apply` node does: a frozen value that makes its operator.

    For operators that bring their own meaning; the plan needs to know no more than this.
    """

    @property
    def kind(self) -> str: ...  # one word, as `explain` says it: "join", "deduplicate"
    @property
    def endless(self) -> bool: ...  # it keeps something for every key ever seen
    @property
    def needs_time(self) -> bool: ...  # its inputs must have event time
    @property
    def functions(self) -> tuple[Callable[..., Any], ...]: ...  # the user's, for `explain`

    def __str__(self) -> str:
        """What it does, in a few words."""

    def shape(self) -> dict[str, Any]:
        """What shapes its state, as plain JSON: it goes on from its state while this is equal."""

    def operator(
        self, keys: Sequence[Sequence[str]], inputs: Sequence[pa.Schema], output: pa.Schema
    ) -> Operator:
        """A fresh operator for one task and one epoch."""


class ChunkSpec(Protocol):
    """What a `Chunks` node does: a value that goes over a chunk, hidden columns included."""

    @property
    def kind(self) -> str: ...  # one word, as `explain` says it: "sample"
    @property
    def functions(self) -> tuple[Callable[..., Any], ...]: ...  # the user's, for `explain`

    def __str__(self) -> str:
        """What it does, in a few words."""

    def run(
        self, chunk: pa.Table, schema: pa.Schema
    ) -> tuple[pa.Table, list[tuple[int, BaseException]]]:
        """Rows of `schema` and their hidden columns; which rows failed, each with its error."""
