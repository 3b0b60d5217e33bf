"""The state of a step, to look at: a snapshot that can be sliced, sorted and queried.

A `StepState` is a value: it shows one epoch and does not change while the job goes on. The
key is found by its hash, so looking at a few keys does not read the others. What a step
stores for all keys, or in further tables, is shown under a name of its own, "step.name". It is read
by way of the newest manifest, so it is whole and of one epoch, whatever the job writes meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.chunk import HASH, plain_type
from headrace.clock import MAX_TIME, MIN_TIME, Moment, moment_millis
from headrace.driver.start import folder_of
from headrace.errors import StateError
from headrace.hashing import Hashes, hash_keys
from headrace.inspect.computed_results import Computed, computed_of, with_computed
from headrace.kernel import duckdb
from headrace.ops.tables import plain_view
from headrace.plan.nodes import Stateful
from headrace.plan.program import Drafted, Program, build
from headrace.schema import ddl_type
from headrace.settings import Settings
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest, StepFacts, table_key
from headrace.state.runs import cache_of
from headrace.state.spec import GONE
from headrace.state.store import SlotState, open_table
from headrace.state.table import KeyedTable, TableSpec

Tables = Mapping[str, KeyedTable]


@dataclass(frozen=True, slots=True)
class StepState:
    """The state of a step after one epoch: `get`, `slice`, `top`, `sql`, or all of it."""

    node: Stateful
    snapshot: StateSnapshot
    since: int = MIN_TIME
    until: int = MAX_TIME
    part: str = ""  # which of its further tables; the state by key if empty
    computed: Computed = ()  # what its results are made of, if not of aggregates alone

    @property
    def name(self) -> str:
        """The step's name, and that of its table if it is a further one."""
        return f"{self.node.name}.{self.part}" if self.part else self.node.name

    @property
    def key(self) -> pa.Schema:
        """The columns that a row is found by."""
        if self.part:
            names, schema = self.node.operator().side_views()[self.part], self.to_arrow().schema
        else:
            names, schema = self.node.keys[0], self.node.inputs[0].schema
            of_no_key = {
                n: _only(t, np.zeros(0, np.uint64)) for n, t in self.snapshot.tables.items()
            }
            if not set(names) <= set(self._seen(of_no_key).column_names):
                names = ()  # it shows something of all keys together
        return pa.schema([schema.field(name) for name in names])

    @property
    def epoch(self) -> int:
        """The epoch after which the state was so."""
        return self.snapshot.epoch

    def __len__(self) -> int:
        return cast("int", self.to_arrow().num_rows)

    def __repr__(self) -> str:
        return f"<state of {self.name!r} after epoch {self.epoch}>"

    def get(self, *key: Any, **columns: Any) -> pa.Table:
        """The rows of one key: `get("area-1")`, or `get(area="area-1", floor=2)`."""
        by_column = self._key(key, columns)
        typed = zip(by_column.values(), self.key, strict=True)
        try:
            values = [pa.array([value], field.type) for value, field in typed]
        except (pa.ArrowException, OverflowError) as error:
            shown = ", ".join(map(repr, by_column.values()))
            kind = ", ".join(f"{f.name} {ddl_type(f.type)}" for f in self.key)
            raise StateError(
                "HR-STATE-031",
                f"the key {shown} does not fit: that of {self.name!r} is {kind}",
                "Give a value of that type for each of its columns.",
            ) from error
        tables = self.snapshot.tables
        if not self.part:  # further tables may lie under no key's hash
            hashes = hash_keys(values, 1)
            tables = {n: _only(t, hashes) for n, t in tables.items()}
        rows = self._seen(tables)
        for name, value in zip(by_column, values, strict=True):
            column = rows.column(name)
            rows = rows.filter(_same(column, value[0]))
        return rows

    def slice(self, since: Moment, until: Moment) -> StepState:
        """The state of this stretch of time: `slice("21:00", "21:05")`, in UTC.

        Of aggregates over panes that is one result per key, over the panes within it.
        """
        by_time = any(t.spec.timed for t in self.snapshot.tables.values())
        if self.part or not by_time or not self.node.operator().sliceable:
            raise StateError(
                "HR-STATE-032",
                f"{self.name!r} stores nothing by time",
                "Only windows and joins can be cut by time; use get, top or sql.",
            )
        lo, hi = (moment_millis(m, self._now()) for m in (since, until))
        if lo >= hi:
            raise StateError(
                "HR-STATE-032",
                f"nothing lies between {since} and {until}",
                "Give the earlier first; a time without a date is on the watermark's day.",
            )
        return replace(self, since=lo, until=hi)

    def _now(self) -> int:
        """Its position in event time: the watermark or, when all has ended, its last row."""
        if MIN_TIME < self.snapshot.watermark < MAX_TIME:
            return self.snapshot.watermark
        times = (t.last_time() for t in self.snapshot.tables.values())
        return max((t for t in times if t is not None), default=0)

    def top(self, n: int, by: str | None = None) -> pa.Table:
        """The n rows with the largest value of `by`, or of the last column; ties by key."""
        if n < 1:
            raise StateError(
                "HR-STATE-033", f"the top {n} rows are none", "Ask for one row or more: top(10)."
            )
        rows = self.to_arrow()
        column = by or rows.column_names[-1]
        if column not in rows.column_names:
            raise StateError(
                "HR-STATE-033",
                f"{self.name!r} shows no column {column!r}",
                f"It shows: {', '.join(rows.column_names)}.",
            )
        if pa.types.is_nested(rows.schema.field(column).type):
            raise StateError(
                "HR-STATE-033",
                f"the column {column!r} of {self.name!r} has no largest value",
                "Say by which column: top(10, by=...).",
            )
        ties = [(name, "ascending") for name in self.key.names if name != column]
        order = pc.sort_indices(rows, [(column, "descending"), *ties])
        return rows.take(order[:n])

    def sql(self, query: str) -> pa.Table:
        """DuckDB over the rows, as the table `state`: sql("SELECT count(*) FROM state")."""
        return ask(query, {"state": self.to_arrow()})

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        return self._seen(self.snapshot.tables)

    def to_pandas(self) -> Any:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_spark(self, spark: Any) -> Any:
        """As a Spark DataFrame of this session."""
        return spark.createDataFrame(self.to_arrow())

    def _seen(self, tables: Tables) -> pa.Table:
        rows = self._view(tables)
        plain = [(f.name, plain_type(f.type)) for f in rows.schema]
        return rows.cast(pa.schema(plain))

    def _view(self, tables: Tables) -> pa.Table:
        operator = self.node.operator()
        if self.part:
            return operator.side_view(self.part, tables)
        own = operator.view(tables, self.since, self.until)
        if own is not None:
            return with_computed(own, self.computed)
        first = next(iter(tables.values()))
        rows = plain_view(first, self.since, self.until)
        names = dict(zip(first.spec.key.names, self.node.keys[0], strict=False))
        return rows.rename_columns([names.get(n, n) for n in rows.column_names])

    def _key(self, values: tuple[Any, ...], columns: Mapping[str, Any]) -> dict[str, Any]:
        names = self.key.names
        by_column = dict(zip(names, values, strict=False)) | dict(columns)
        if len(values) > len(names) or set(by_column) != set(names):
            raise StateError(
                "HR-STATE-031",
                f"the key of {self.name!r} is {self._described()}",
                "Give a value for each of its columns.",
            )
        return {name: by_column[name] for name in names}

    def _described(self) -> str:
        return ", ".join(self.key.names) or "empty: it shows no rows of single keys"


def names_of(program: Program) -> dict[str, tuple[Stateful, str]]:
    """All state that can be looked at, by name: that of steps, and their further tables."""
    names = {n.name: (n, "") for n in program.stateful() if n.operator().tables()}
    for node in program.stateful():
        for name in node.operator().side_views():
            names.setdefault(f"{node.name}.{name}", (node, name))
    return names


def state_of(program: Program, log: EpochLog, step: str) -> StepState:
    """The state of `step`, as the job's folder has it now."""
    names = names_of(program)
    if step not in names:
        steps = ", ".join(names) or "none"
        raise StateError(
            "HR-STATE-030",
            f"{program.name!r} has no step {step!r} with state",
            f"The steps with state are: {steps}.",
        )
    node, part = names[step]
    snapshot = read_snapshot(log, node, log.open(program.name, 1))
    return StepState(node, snapshot, part=part, computed=computed_of(program, node))


def peek(job: Drafted, step: str, *, folder: str | None = None, **settings: Any) -> StepState:
    """The state of a step of a job: `hr.peek(job, "averages").top(10)`.

    From any session, while the job runs elsewhere or after it; nothing is changed.
    """
    return state_of(*opened(job, folder, **settings), step)


def opened(job: Drafted, folder: str | None = None, **settings: Any) -> tuple[Program, EpochLog]:
    """A job's program and the folder in which it has run."""
    program = build(job)
    log = EpochLog(folder_of(program, Settings.load(**settings), folder))
    if not (log.folder / "job.json").exists():
        raise StateError(
            "HR-STATE-035",
            f"{program.name!r} has never run in {str(log.folder)!r}",
            "Give the folder that it runs in: folder=... .",
        )
    return program, log


def ask(query: str, tables: Mapping[str, pa.Table]) -> pa.Table:
    """A query over Arrow tables, by DuckDB; a mistake in it is a named error."""
    with _named(tables):
        return duckdb.ask(query, tables)


def ask_some(query: str, tables: Mapping[str, pa.Table], most: int) -> tuple[pa.Table, int]:
    """Its first rows, in bounded memory, and how many more there are."""
    with _named(tables):
        return duckdb.ask_some(query, tables, most)


@contextmanager
def _named(tables: Mapping[str, pa.Table]) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise StateError(
            "HR-STATE-034",
            f"the query cannot be answered: {str(error).splitlines()[0]}",
            f"The tables are: {', '.join(map(_quoted, tables))}.",
        ) from error


def _quoted(name: str) -> str:
    """A name as SQL writes it."""
    return name if name.isidentifier() else f'"{name}"'


def _only(table: KeyedTable, hashes: Hashes) -> KeyedTable:
    """The same table with the rows of these hashes alone; what all slots know lies under none,
    and of what lies by parts of a key the view finds those of the key."""
    if table.spec.everywhere or table.spec.by_part:
        return table
    if not table.spec.timed:
        rows = table.match(hashes)
    else:
        rows = table.scan()
        rows = rows.filter(pa.array(np.isin(rows.column(HASH).to_numpy(), hashes)))
    return KeyedTable(table.spec, [rows.append_column(GONE, pa.repeat(False, rows.num_rows))])


def _same(column: pa.ChunkedArray, value: pa.Scalar) -> pa.ChunkedArray:
    """Which values are this one, as keys are: null and NaN are values like others."""
    if not value.is_valid:
        return pc.is_null(column)
    odd = isinstance(value.as_py(), float) and value.as_py() != value.as_py()
    return pc.is_nan(column) if odd else pc.equal(column, value)


_PATIENCE = 3  # a file may be merged away between reading its name and opening it


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """The tables of one step after one epoch."""

    epoch: int
    watermark: int
    tables: Mapping[str, KeyedTable]


def read_snapshot(log: EpochLog, node: Stateful, slots: int) -> StateSnapshot:
    """The state of `node` after the newest epoch; empty before the first."""
    for attempt in range(_PATIENCE):
        try:
            return _snapshot(log, node, slots)
        except (FileNotFoundError, StateError):
            if attempt == _PATIENCE - 1:
                raise
    raise AssertionError("unreachable")


def _snapshot(log: EpochLog, node: Stateful, slots: int) -> StateSnapshot:
    latest, folder = log.latest() or Manifest(), str(log.folder)
    tables = {
        spec.name: _table(folder, latest.state.get(table_key(node.name, spec.name)), spec, slots)
        for spec in node.operator().tables()
    }
    watermark = latest.ops.get(node.name, StepFacts()).watermark
    return StateSnapshot(latest.epoch, watermark, tables)


def _table(folder: str, stored: dict[str, Any] | None, spec: TableSpec, slots: int) -> KeyedTable:
    state = SlotState.from_json(stored) if stored else SlotState.empty(slots)
    last = 1 if spec.everywhere else slots
    return open_table(spec, state, 0, last, slots, cache_of(folder))
