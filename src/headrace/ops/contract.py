"""What a stateful operator is: plain functions over Arrow, the same in a test and on Spark.

An operator is built anew for each task and epoch from its spec. It never sees Spark, files
or the wall clock: its state comes as keyed tables, its time as two watermarks and a clock
reading; in processing time, the clock is its watermark. Within an epoch all rows are applied
under the watermark `before`; then the watermark moves to `after`, and what is due fires. So an
epoch's result does not depend on the order in which rows arrive.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.at_rest import described
from headrace.callables import title
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.expr import Expr
from headrace.ops.agg.named import Aggregate
from headrace.ops.user_metrics import UserMetrics
from headrace.state.table import KeyedTable, TableSpec

WINDOWS_SEEN = ("fired", "mute", "lost")  # firings, those without a result, ends unshown


@dataclass(frozen=True, slots=True)
class Fault:
    """A row on which the user's function raised; which becomes a dead letter."""

    row: pa.Table  # one row, hidden columns included
    error: BaseException
    port: int = -1  # the input it may come by again; -1 if the step has used it, or has none
    place: int = -1  # the number of its call among those of the block


@dataclass(slots=True)
class EpochStep:
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
    metrics: UserMetrics = field(default_factory=UserMetrics)  # figures of the user's own
    windows: Counter[str] = field(default_factory=Counter)  # see `WINDOWS_SEEN`
    filtered: list[pa.Table] = field(default_factory=list)  # rows it left out, to be counted so
    next: int = MAX_TIME  # the watermark at which something is due even without input
    wake: int = MAX_TIME  # the clock at which something is due even without input
    holds: int | None = None  # the oldest event time of rows that it will emit for later
    oldest: int | None = None  # the first offset of records that wait in it to be processed again
    newest: int = MIN_TIME  # the furthest watermark of its splits; of use when they have ended
    homes: Sequence[int] = ()  # a key hash in each slot of this task: see `tables.py`
    task: int = 0  # which of the tasks this is

    @property
    def arrived(self) -> pa.Table | None:
        """The new rows of the first input; None when there are none."""
        rows = self.inputs[0]
        return rows if rows is not None and rows.num_rows else None


class Operator(ABC):
    """The meaning of one stateful step; by default no row is late and rows travel as they are."""

    version = 1  # of the format of its state
    filters = False  # whether `prepare` leaves rows out
    by_task = False  # whether it has state per task, which depends on the number of tasks

    @abstractmethod
    def tables(self) -> tuple[TableSpec, ...]:
        """The tables of its state."""

    @abstractmethod
    def step(self, step: EpochStep) -> None:
        """Apply one epoch to the state and emit what is due."""

    def unfit(self, port: int, rows: pa.Table) -> tuple[np.ndarray, list[str]] | None:
        """Mask of the rows that it cannot use, and the reason of each; None when there are none."""
        return None

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        """Mask of the rows that come too late under `watermark`; None when none can."""
        return None

    def prepare(self, port: int, rows: pa.Table) -> pa.Table:
        """What to send instead of `rows`: a pre-aggregate, made where the rows are."""
        return rows

    def combine(self, port: int, prepared: pa.Table) -> pa.Table:
        """Fold several prepared chunks of one task into one before they travel."""
        return prepared

    sliceable = True  # whether `view` can be of a stretch of time, if there is state by time

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table | None:
        """The state of [since, until) in the user's words; None: the rows of its first table."""
        return None

    def side_views(self) -> Mapping[str, Sequence[str]]:
        """Further state that can be looked at: its name, and the columns a row is found by."""
        return {}

    def side_view(self, name: str, tables: Mapping[str, KeyedTable]) -> pa.Table:
        """One of the `side_views`, in the user's words."""
        raise KeyError(name)


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a program a step is: its keys, the rows it reads and those it emits."""

    keys: tuple[tuple[str, ...], ...]  # the key columns of each input
    inputs: tuple[pa.Schema, ...]
    output: pa.Schema
    timed: bool = False  # rows have event time
    broadcast: tuple[int, ...] = ()  # inputs whose rows reach every task
    over: int = MIN_TIME  # windows that end before this were over by a shorter lateness

    @property
    def key(self) -> tuple[str, ...]:
        return self.keys[0]

    @property
    def input(self) -> pa.Schema:
        return self.inputs[0]


class Spec(ABC):
    """What a stateful step does: a frozen value that makes its operator.

    All that other rooms must know of a step is asked here, so a new operator is one file. The
    defaults are those of a step without user code, with bounded state, that needs no time.
    """

    at_rest = "Apply"  # what a manifest calls this kind of step; never changes
    keys_by_name = False  # whether the names of its key columns identify its state
    passes = False  # it emits the rows it got, at most once each, and nothing else
    encodes_keys = False  # it can read text keys through their dictionary
    spreads = False  # without a key, its rows go to all tasks; otherwise all to one
    table_ports: tuple[int, ...] = ()  # inputs of which a row replaces the one before of its key

    @property
    @abstractmethod
    def kind(self) -> str:
        """One word, as `explain` says it: "join", "deduplicate"."""

    @abstractmethod
    def operator(self, place: Place) -> Operator:
        """A fresh operator for one task and one epoch."""

    @property
    def has_late(self) -> bool:
        """Whether rows can be late for it."""
        return False

    @property
    def needs_time(self) -> bool:
        """Whether its inputs must have event time."""
        return False

    @property
    def by_event_time(self) -> bool:
        """Whether event times are part of its state, unless it goes by the clock."""
        return True

    @property
    def endless(self) -> bool:
        """Whether it holds state for every key ever seen."""
        return False

    @property
    def stateless(self) -> bool:
        """Whether it needs its key, but stores nothing."""
        return False

    @property
    def stores_input(self) -> bool:
        """Whether its state holds rows like the input's."""
        return False

    @property
    def sees_rows(self) -> bool:
        """Whether it needs every column, not only those it aggregates."""
        return True

    @property
    def sends_partials(self) -> bool:
        """Whether what travels to it are partial aggregates."""
        return False

    @property
    def stores_partials(self) -> bool:
        """Whether its aggregates are stored as partials, to which others can be added."""
        return False

    widens_keys = False  # whether its state goes on under a wider key, and in wider stored rows

    def goes_on(self, before: Mapping[str, Any]) -> dict[str, str]:
        """The settings of its shape that may be others than `before` over the same state, each
        with what `plan` says of it."""
        return {}

    def recut(self, table: str, rows: pa.Table, watermark: int) -> pa.Table:
        """Rows of a timed table that were stored under other settings, as they are under these."""
        return rows

    @property
    def runs_user_code(self) -> bool:
        """Whether user code runs before rows travel, where each row may fail alone."""
        return False

    def dealt_by(self, port: int) -> tuple[str, ...]:
        """The columns of an input by which its rows go to tasks that have state, if not by key."""
        return ()

    def dealt(self, port: int) -> str:
        """How the rows of an input go to its tasks, where that is not by key; for `explain`."""
        return ""

    def detail(self, keyed_by: str, processing: bool) -> str:
        """What it does, in a few words, for `explain`."""
        return f"{keyed_by}: {self}"

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's functions."""
        return ()

    @property
    def user_code(self) -> list[Any]:
        """What distinguishes it from a step with other functions."""
        return list(self.functions)

    @property
    def python(self) -> str | None:
        """Why it runs as Python; None when it does not."""
        return _python(self.functions)

    @property
    def bound(self) -> str:
        """How the user accepts that its state grows, or bounds it: "say ..."."""
        return "unbounded=True; otherwise use .window(...), whose state is dropped as time passes."

    def shape(self) -> dict[str, Any]:
        """Its settings that shape the state, as plain JSON."""
        return {}

    def state_shape(self, place: Place) -> dict[str, Any]:
        """What shapes its state, as plain JSON: it goes on from its state while this is equal."""
        rows = {"rows": described(place.input)} if self.stores_input else {}
        return {"kind": self.kind, "what": self.shape() | rows}

    def remembered(self, place: Place) -> dict[str, str]:
        """The types of results that are stored as they were emitted, so as to be retracted."""
        return {}

    @property
    def lengths(self) -> dict[str, int]:
        """For how long what is over stays in state; a longer time would need what is gone."""
        return {}

    @property
    def input_names(self) -> tuple[str, ...]:
        """What its inputs are called; empty where they have no names of their own."""
        return ()

    @property
    def thins_table(self) -> bool:
        """Whether it emits a table of the rows of a table, with fewer changes."""
        return False

    @property
    def own_key(self) -> tuple[str, ...]:
        """The key of a left table that refers to the right one by other columns."""
        return ()

    @property
    def aggregates(self) -> tuple[tuple[str, Aggregate], ...]:
        """Its named aggregates."""
        return ()

    def with_aggregates(self, aggs: tuple[tuple[str, Aggregate], ...]) -> Spec:
        """The same step with other aggregates."""
        raise TypeError(f"{self.kind} has no aggregates")

    def for_step(self, name: str) -> Spec:
        """The same in "job/step": two jobs, and two steps, draw independently of each other."""
        aggs = tuple((n, agg.for_step(name)) for n, agg in self.aggregates)
        changed = any(a is not b for (_, a), (_, b) in zip(aggs, self.aggregates, strict=True))
        return self.with_aggregates(aggs) if changed else self

    @property
    def extra_columns(self) -> tuple[tuple[str, Expr], ...]:
        """Columns that it reads and that the plan has to compute for it."""
        return ()

    @property
    def compares(self) -> tuple[str, ...]:
        """The columns by which it decides what to store."""
        return ()

    @property
    def ends_by(self) -> str | None:
        """The column that decides where its windows end."""
        return None

    @property
    def emits_time(self) -> str | None:
        """What the event time of its results is; None: that of the rows it got."""
        return None

    @property
    def holds(self) -> int:
        """How many ms the time of its results may lie behind its watermark: so much later are
        the steps after it, for which they would be late."""
        return 0

    def passes_on(self, columns: Collection[str]) -> bool:
        """Whether these columns of its results are those of the row it got."""
        return self.passes

    @property
    def loses(self) -> str:
        """What is lost when a process of the job ends, though the job goes on; empty: nothing."""
        return ""

    def close(self) -> None:  # noqa: B027  most start nothing
        """A run in this process has ended: end what its operators started here."""

    def firing(self, output: pa.Schema) -> str | None:
        """What was asked of its windows beyond firing once; None where nothing can be."""
        return None


def _python(functions: Sequence[Callable[..., Any]]) -> str | None:
    return f"{', '.join(map(title, functions))}: a Python function" if functions else None


class ChunkSpec(ABC):
    """What a `Chunks` node does: a value that goes over a chunk, hidden columns included."""

    several = False  # a row may become several

    def for_step(self, name: str) -> ChunkSpec:
        """The same in "job/step": two jobs, and two steps, draw independently of each other."""
        return self

    @property
    @abstractmethod
    def kind(self) -> str:
        """One word, as `explain` says it: "sample"."""

    @abstractmethod
    def run(
        self, chunk: pa.Table, schema: pa.Schema
    ) -> tuple[pa.Table, list[tuple[int, BaseException]]]:
        """Rows of `schema` and their hidden columns; which rows failed, each with its error."""

    @property
    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's functions."""
        return ()

    @property
    def python(self) -> str | None:
        """Why it runs as Python; None when it does not."""
        return _python(self.functions)

    @property
    def reads(self) -> str | None:
        """The column that decides which rows come out."""
        return None

    def leaves(self, columns: Collection[str]) -> bool:
        """Whether these columns are as they were before the step."""
        return False

    def makes(self, column: str) -> str:
        """What a column is that the step computes, as text that stays; empty: by its name."""
        return ""

    @property
    def dealt_by(self) -> tuple[str, ...]:
        """The columns by which it deals rows out to numbered tasks."""
        return ()

    @property
    def chosen_by(self) -> str:
        """What else decides which rows come out, as text that stays."""
        return ""
