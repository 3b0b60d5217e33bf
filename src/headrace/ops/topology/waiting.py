"""Tuples of a bolt that wait: to be processed again after a failure, or to be acked.

What waits is state of the bolt's task, committed with the epoch: the tuple as it arrived, with its
place, so that the next attempt finds it as the first did. A row says itself which columns it has:
a changed program reads what it can, and what it cannot is a dead letter. Narrow tables find what
is due by the clock, the oldest event time, which holds later steps back, and the first offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from headrace.chunk import HASH, HIDDEN, OFFSET, SOURCE, TIME, plain_column, plain_type, visible
from headrace.clock import MAX_TIME, MIN_TIME, pretty
from headrace.errors import said_by
from headrace.ops.contract import EpochStep, Fault
from headrace.ops.process.migration import widens
from headrace.schema import ddl_type
from headrace.state.table import KeyedTable, TableSpec

WAITING, DUE, TIMES = "waiting", "waiting_due", "waiting_times"  # at rest, as all below
OFFSETS = "waiting_offsets"
FAILED, UNACKED = "failed", "unacked"
_KEY = pa.schema([("task", pa.int64()), ("id", pa.string())])
_HELD = pa.list_(pa.struct([("stream", pa.string()), ("rows", pa.binary())]))
_VALUE = pa.schema(
    [
        ("due", pa.int64()),
        ("why", pa.string()),  # failed, unacked
        ("attempt", pa.int32()),
        ("input", pa.string()),
        ("time", pa.int64()),
        ("reason", pa.string()),
        ("tuple", pa.binary()),
        ("held", _HELD),
    ]
)
_TABLES = (
    TableSpec(WAITING, _KEY, _VALUE, optional=True),
    TableSpec(DUE, _KEY, pa.schema([]), timed=True, optional=True),
    TableSpec(TIMES, _KEY, pa.schema([]), timed=True, optional=True),
    TableSpec(OFFSETS, _KEY, pa.schema([]), timed=True, optional=True),
)
_MOST_DOUBLINGS = 20  # of the back-off


class TupleFailedError(Exception):
    """A bolt failed a tuple; the reason is that of its dead letter."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How often a tuple is processed again, and how long it waits; may change between runs."""

    max_replays: int
    backoff: int  # ms before the first replay; twice as long before each further one
    timeout: int  # ms until a tuple that is not acked has failed

    def due(self, clock: int, attempt: int) -> int:
        """When a tuple is processed for the `attempt`-th time again."""
        return clock + (self.backoff << min(attempt - 1, _MOST_DOUBLINGS))


@dataclass(slots=True)
class Waiting:
    """One tuple that waits."""

    row: pa.Table  # as it arrived, hidden columns included
    task: int  # the key of its task
    hash: int
    id: str
    attempt: int  # of its next call, or of the one that did not ack it
    input: str
    why: str = FAILED
    reason: str = ""  # why it failed; of one that is not acked, which process has it
    due: int = 0
    held: list[tuple[str, pa.Table]] = field(default_factory=list)  # emitted when it is acked

    @property
    def time(self) -> int:
        known = TIME in self.row.column_names and self.row[TIME][0].as_py() is not None
        return int(self.row[TIME][0].as_py()) if known else MIN_TIME

    @property
    def offset(self) -> int:
        known = OFFSET in self.row.column_names
        return int(self.row[OFFSET][0].as_py()) if known else MAX_TIME

    def placed(self, rows: pa.Table, timed: bool) -> pa.Table:
        """Rows that it was waiting for, with its event time and origin."""
        for name in (TIME, SOURCE, OFFSET):
            if name in self.row.column_names and (name != TIME or timed):
                value = pa.scalar(self.row[name][0].as_py(), HIDDEN[name])
                rows = rows.append_column(name, pa.repeat(value, rows.num_rows))
        return rows


class WaitingTuples:
    """The tables of one bolt."""

    def __init__(self, how: Reliability, names: Sequence[str], timed: bool) -> None:
        self._how, self._names, self._timed = how, names, timed

    @staticmethod
    def tables() -> tuple[TableSpec, ...]:
        return _TABLES

    def put(self, tuples: Sequence[Waiting], step: EpochStep) -> None:
        if not tuples:
            return
        columns = {
            HASH: pa.array([t.hash for t in tuples], pa.uint64()),
            "task": pa.array([t.task for t in tuples], pa.int64()),
            "id": pa.array([t.id for t in tuples], pa.string()),
        }
        keys = pa.table(columns)
        values = [
            {
                "due": t.due,
                "why": t.why,
                "attempt": t.attempt,
                "input": t.input,
                "time": t.time,
                "reason": t.reason,
                "tuple": _bytes(t.row),
                "held": [{"stream": s, "rows": _bytes(rows)} for s, rows in t.held],
            }
            for t in tuples
        ]
        rows = pa.Table.from_pylist(values, schema=_VALUE)
        for name in _VALUE.names:
            keys = keys.append_column(_VALUE.field(name), rows[name])
        step.tables[WAITING].put(keys)
        step.tables[DUE].put(keys.append_column(TIME, keys["due"]))
        step.tables[TIMES].put(keys.append_column(TIME, keys["time"]))
        offsets = pa.array([t.offset for t in tuples], pa.int64())
        step.tables[OFFSETS].put(keys.append_column(TIME, offsets))

    def take_due(self, step: EpochStep) -> list[Waiting]:
        """Remove what is due by the clock, and return it."""
        table = step.tables[DUE]
        if not table.rows_held:
            return []
        due = table.scan(MIN_TIME, step.clock + 1)
        table.expire(step.clock)  # what fails now may be due at this clock again
        return self._take(due, step)

    def take_unacked(self, step: EpochStep) -> list[Waiting]:
        """Remove what waits to be acked, to process it again now; the others wait on."""
        table = step.tables[WAITING]
        found = self._take(table.scan(), step, only=UNACKED) if table.rows_held else []
        return [one for one in found if self._fits(one, step)]

    def take_all(self, step: EpochStep) -> list[Waiting]:
        """Remove all that waits: nothing else will come."""
        if not step.tables[WAITING].rows_held:
            return []
        return self._take(step.tables[WAITING].scan(), step)

    def take(self, ids: Iterable[tuple[int, int, str]], step: EpochStep) -> list[Waiting]:
        """Remove the tuples of these hashes, tasks and ids that wait to be acked."""
        sought = list(dict.fromkeys(ids))
        if not sought:
            return []
        hashes, tasks, names = zip(*sought, strict=True)
        kinds = (pa.uint64(), pa.int64(), pa.string())
        arrays = [pa.array(c, k) for c, k in zip((hashes, tasks, names), kinds, strict=True)]
        return self._take(pa.table(arrays, names=[HASH, *_KEY.names]), step, only=UNACKED)

    def _take(self, keys: pa.Table, step: EpochStep, only: str = "") -> list[Waiting]:
        if not keys.num_rows:
            return []
        keys = keys.select([HASH, *_KEY.names])
        values, there = step.tables[WAITING].get(keys)
        rows = keys
        for name in _VALUE.names:
            rows = rows.append_column(_VALUE.field(name), values[name])
        taken = there & np.array([not only or w == only for w in values["why"].to_pylist()])
        rows = rows.filter(pa.array(taken))
        step.tables[WAITING].delete(rows.select([HASH, *_KEY.names]))
        step.tables[DUE].delete(rows.append_column(TIME, rows["due"]))
        step.tables[TIMES].delete(rows.append_column(TIME, rows["time"]))
        tuples = [
            Waiting(
                row=_table(r["tuple"]),
                task=r["task"],
                hash=r[HASH],
                id=r["id"],
                attempt=r["attempt"],
                input=r["input"],
                why=r["why"],
                reason=r["reason"],
                due=r["due"],
                held=[(h["stream"], _table(h["rows"])) for h in r["held"] or ()],
            )
            for r in rows.to_pylist()
        ]
        offsets = pa.array([t.offset for t in tuples], pa.int64())
        step.tables[OFFSETS].delete(rows.append_column(TIME, offsets))
        return tuples

    def look_ahead(self, step: EpochStep) -> None:
        """When the next one is due, and the oldest event time and offset that wait."""
        if not step.tables[WAITING].rows_held:
            return
        due = _first(step.tables[DUE])
        step.wake = min(step.wake, MAX_TIME if due is None else due)
        step.holds = _first(step.tables[TIMES]) if self._timed else None
        step.oldest = _first(step.tables[OFFSETS])

    # what becomes of a failure

    def again(
        self, tuples: Iterable[Waiting], step: EpochStep, *, at_once: bool = False
    ) -> list[Waiting]:
        """Of tuples that were due: those to process now. Without an ack in time they have failed:
        the others wait on, or are dead letters."""
        now: list[Waiting] = []
        later: list[Waiting] = []
        for one in tuples:
            if one.why == UNACKED:
                failed = self.timed_out(one, step, at_end=at_once)
                if failed is None:
                    continue
                one = failed  # noqa: PLW2901
            (now if at_once or one.due <= step.clock else later).append(one)
        self.put(later, step)
        return [one for one in now if self._fits(one, step)]

    def failed(self, one: Waiting, error: BaseException, step: EpochStep) -> Waiting | None:
        """The tuple of an attempt that failed, as it waits for the next; None if it is dead."""
        attempt = one.attempt + 1
        if attempt > self._how.max_replays:
            step.faults.append(Fault(one.row, _last(error, attempt)))
            return None
        due = self._how.due(step.clock, attempt)
        why = said_by(error)
        return Waiting(one.row, one.task, one.hash, one.id, attempt, one.input, FAILED, why, due)

    def timed_out(self, one: Waiting, step: EpochStep, *, at_end: bool = False) -> Waiting | None:
        """A tuple that was not acked in time has failed."""
        limit = f"within {pretty(self._how.timeout)}"
        limit = "before the end of the input" if at_end else limit
        return self.failed(one, TupleFailedError(f"neither acked nor failed {limit}"), step)

    def unacked(self, one: Waiting, step: EpochStep) -> Waiting:
        one.why, one.due = UNACKED, step.clock + self._how.timeout
        return one

    def emitted(
        self, one: Waiting, schemas: Mapping[str, pa.Schema], step: EpochStep
    ) -> Iterator[tuple[str, pa.Table]]:
        """What was waiting for the ack of a tuple, by stream, as the streams are now; if it cannot
        be emitted now, the tuple is a dead letter."""
        found, why = [], self._untimed(one) if one.held else ""
        for stream, rows in one.held:
            now = _as_now(rows, schemas[stream]) if stream in schemas else None
            if now is None:
                why = why or f"the fields of the stream {stream!r} have changed"
            else:
                found.append((stream, one.placed(now, self._timed)))
        if why:
            _dead(one, f"its tuples waited for its ack, and {why}", step)
            return
        yield from found

    def _fits(self, one: Waiting, step: EpochStep) -> bool:
        """Whether the bolt still reads the input so; if not, the tuple is a dead letter."""
        if one.input in self._names:
            why = self._untimed(one)
        else:
            why = f"the bolt no longer reads {one.input!r}"
        if why:
            _dead(one, f"it waited to be processed again, and {why}", step)
        return not why

    def _untimed(self, one: Waiting) -> str:
        """Why a tuple cannot go where rows have event time: its input had none, or another."""
        missing = self._timed and TIME not in one.row.column_names
        return "it has no event time as its input has now" if missing else ""


def _dead(one: Waiting, why: str, step: EpochStep) -> None:
    step.faults.append(Fault(one.row, TupleFailedError(why)))


def moved(run: pa.Table, names: Mapping[str, str], untimed: Collection[str]) -> pa.Table:
    """Stored tuples by the `names` of their inputs now, by those before; without event time if
    their input is one of `untimed`."""
    inputs = [None if n is None else names.get(n, n) for n in run["input"].to_pylist()]
    rows = run["tuple"].to_pylist()
    for place, name in enumerate(inputs):
        if name in untimed and TIME in (row := _table(rows[place])).column_names:
            rows[place] = _bytes(row.drop_columns([TIME]))
    for name, values in (("input", inputs), ("tuple", rows)):
        at = run.column_names.index(name)
        run = run.set_column(at, name, pa.array(values, _VALUE.field(name).type))
    return run


def _first(table: KeyedTable) -> int | None:
    """The first time in a table; what was deleted does not count."""
    time = table.first_time()
    while time is not None and not table.scan(time, time + 1).num_rows:
        time = table.first_time(time + 1)
    return time


def _last(error: BaseException, attempts: int) -> BaseException:
    """The error of the last attempt, with the number of attempts."""
    if attempts == 1:
        return error
    own = isinstance(error, TupleFailedError)
    text = str(error) if own else f"{type(error).__name__}: {error}"
    return TupleFailedError(f"{text}; attempts: {attempts}").with_traceback(error.__traceback__)


class Replays:
    """The tuples that are processed again in an epoch, added to the rows of their inputs."""

    def __init__(
        self,
        tuples: Sequence[Waiting],
        inputs: Sequence[pa.Table | None],
        names: Sequence[str],
        schemas: Sequence[pa.Schema],
        step: EpochStep,
    ) -> None:
        self._first = np.array([0 if rows is None else rows.num_rows for rows in inputs])
        self._of: list[list[Waiting]] = [[] for _ in inputs]
        added: list[list[pa.Table]] = [[] for _ in inputs]
        for one in tuples:
            port = names.index(one.input)
            row = _as_now(one.row, schemas[port])
            if row is None:
                text = "it waited to be processed again, and the fields of its input have changed"
                _dead(one, text, step)
                continue
            self._of[port].append(one)
            added[port].append(row)
        self.count = sum(map(len, self._of))
        self.failed = sum(one.why == FAILED for of in self._of for one in of)
        self.inputs = [
            pa.concat_tables([*([] if old is None else [old]), *new], promote_options="permissive")
            if new
            else old
            for old, new in zip(inputs, added, strict=True)
        ]

    def of(self, ports: np.ndarray, indexes: np.ndarray) -> dict[int, Waiting]:
        """By the number of their call, in a block of rows."""
        if not self.count:
            return {}
        at = np.flatnonzero(indexes >= self._first[ports])
        return {
            int(i): self._of[int(ports[i])][int(indexes[i] - self._first[ports[i]])] for i in at
        }


def _as_now(rows: pa.Table, schema: pa.Schema) -> pa.Table | None:
    """Rows with their columns as they are declared now; None where a column is new, or has a type
    that does not hold every value of the one it had."""
    shown = visible(rows)
    wanted = [f for f in schema if not f.name.startswith("__")]
    if shown.column_names == [f.name for f in wanted] and all(
        shown.schema.field(f.name).type == f.type for f in wanted
    ):
        return rows
    if not all(f.name in shown.column_names and _holds(f, shown.schema) for f in wanted):
        return None
    try:
        columns = {f.name: plain_column(shown[f.name]).cast(f.type) for f in wanted}
    except pa.ArrowException:
        return None
    hidden = {n: rows[n] for n in rows.column_names if n.startswith("__")}
    return pa.table({**columns, **hidden})


def _holds(field: pa.Field, stored: pa.Schema) -> bool:
    """Whether a column has the stored type, or a wider one of the same values."""
    old, new = plain_type(stored.field(field.name).type), plain_type(field.type)
    return ddl_type(old) == ddl_type(new) or widens(old, new)


def _bytes(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    rows = rows.combine_chunks().replace_schema_metadata(None)
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
