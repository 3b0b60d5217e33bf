"""What steps that learn have in common: rows in order, a model for each key, rows that fail.

With event time, rows wait until the watermark has passed them, and are then learned in the order
of event time, split and offset: how they are cut into batches changes nothing. Without it, batch
after batch, in the order of split and offset. A row on which a model fails leaves it as it was.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.at_rest import described
from headrace.chunk import HASH, OFFSET, SOURCE, TIME
from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import StateError
from headrace.ops.contract import EpochStep, Fault, Operator, Place, Spec
from headrace.ops.keys import KeyGroups, rows_by_key
from headrace.ops.learn.library import RELEASE, check_release, release
from headrace.ops.learn.model_text import NotStorableError, model_text, read_model
from headrace.ops.row_buffer import RowBuffer
from headrace.rows import collector_paused
from headrace.state.table import KeyedTable, TableSpec

MODELS = "models"
_ROWS, _RIVER, _TEXT = "$rows", "$river", "$model"
_VALUE = pa.schema([(_ROWS, pa.int64()), (_RIVER, pa.string()), (_TEXT, pa.string())])

FAILED = object()  # instead of the result of a row


class LearningSpec(Spec):
    """A step with a model for each key, or one for all rows."""

    timed: bool  # its rows have event time
    model: str  # the text of a model that has learned nothing
    settings: tuple[tuple[str, Any], ...]  # how it was made

    keys_by_name = True
    widens_keys = True
    endless = True

    @property
    def by_event_time(self) -> bool:
        return self.timed

    @property
    def has_late(self) -> bool:
        return self.timed

    @abstractmethod
    def reads(self, place: Place) -> pa.Schema:
        """The columns of the rows that it waits with, its key's included."""

    def shape(self) -> dict[str, Any]:
        return {"river": RELEASE, **dict(self.settings)}

    def state_shape(self, place: Place) -> dict[str, Any]:
        rows = {"rows": described(self.reads(place))} if self.timed else {}
        return {"kind": self.kind, "what": self.shape() | rows}


class LearningOperator(Operator):
    """Rows in order, and the models of their keys before and after them."""

    def __init__(self, spec: LearningSpec, place: Place) -> None:
        check_release()
        self._keys, self._new = list(place.key), spec.model
        key = pa.schema([place.input.field(k) for k in self._keys])
        self._rows = spec.reads(place)
        self._buffer = RowBuffer(key, self._rows) if spec.timed else None
        self._models = TableSpec(MODELS, key, _VALUE)

    def tables(self) -> tuple[TableSpec, ...]:
        return (self._models, *([self._buffer.spec] if self._buffer else []))

    @abstractmethod
    def items(self, rows: pa.Table) -> Sequence[Any]:
        """What a model learns of each row."""

    @abstractmethod
    def run(self, model: Any, items: Sequence[Any], results: list[Any]) -> None:
        """Learn the items in order; the result of each is appended before the next is learned."""

    @abstractmethod
    def emitted(self, rows: pa.Table, results: list[Any], numbers: np.ndarray) -> pa.Table:
        """What is emitted of rows with a result; `numbers` count the rows of their keys."""

    def late(self, port: int, rows: pa.Table, watermark: int) -> np.ndarray | None:
        if self._buffer is None or watermark <= MIN_TIME:
            return None
        return np.asarray(rows.column(TIME).to_numpy() < watermark)

    def view(self, tables: Mapping[str, KeyedTable], since: int, until: int) -> pa.Table:
        """The model of each key as text, and how many rows it has seen."""
        stored = tables[MODELS].scan()
        names = [*self._keys, "rows", "model"]
        return stored.select([*self._keys, _ROWS, _TEXT]).rename_columns(names)

    def step(self, step: EpochStep) -> None:
        rows = step.arrived
        if self._buffer is not None:
            rows = self._buffer.advance(rows, step)
            waiting = self._buffer.next(step)
            step.next = MAX_TIME if waiting is None else waiting
        if rows is not None and rows.num_rows:
            self._learn(rows, step)

    @collector_paused()
    def _learn(self, rows: pa.Table, step: EpochStep) -> None:
        groups, starts = rows_by_key(rows, self._keys)
        stored, present = step.tables[MODELS].get(groups.keys)
        before = np.where(present, _integers(stored[_ROWS]), 0)
        texts = stored[_TEXT].to_pylist()
        items, results = self.items(groups.rows), list[Any]()
        ends = [*starts[1:].tolist(), groups.rows.num_rows]
        after: list[str] = []
        for text, has, start, end in zip(texts, present, starts.tolist(), ends, strict=True):
            old = text if has else self._new
            own, now, faults = self._advance(old, items[start:end])
            results += own
            after.append(now)
            step.faults += [
                Fault(_visible(groups.rows.slice(start + i, 1)), error, 0) for i, error in faults
            ]
        counts = np.diff([*starts, groups.rows.num_rows])
        self._store(groups.keys, before + counts, after, step)
        numbers = np.repeat(before - starts, counts) + np.arange(len(results)) + 1
        self._emit(groups, results, numbers, step)

    def _advance(
        self, text: str, items: Sequence[Any]
    ) -> tuple[list[Any], str, list[tuple[int, Exception]]]:
        """The results of a key's rows, its model after them, and which rows failed.

        What a row that fails has changed is undone: the model is read again, and learns the rows
        since it was last written once more.
        """
        model, since = read_model(text), 0
        results: list[Any] = []
        faults: list[tuple[int, Exception]] = []
        while True:
            try:
                self.run(model, items[len(results) :], results)
                return results, _stored_text(model), faults
            except Exception as error:
                if isinstance(error, StateError):
                    raise
                failed = len(results)
                model = read_model(text)
                self.run(model, items[since:failed], [])
                text, since = _stored_text(model), failed + 1
                results.append(FAILED)
                faults.append((failed, error))

    def _store(self, keys: pa.Table, rows: np.ndarray, texts: list[str], step: EpochStep) -> None:
        table = keys.append_column(_ROWS, pa.array(rows, pa.int64()))
        table = table.append_column(_RIVER, pa.array([release()] * len(texts), pa.string()))
        step.tables[MODELS].put(table.append_column(_TEXT, pa.array(texts, pa.string())))

    def _emit(
        self, groups: KeyGroups, results: list[Any], numbers: np.ndarray, step: EpochStep
    ) -> None:
        chosen = [i for i, one in enumerate(results) if one is not None and one is not FAILED]
        if len(chosen) == len(results):
            step.out.append(self.emitted(groups.rows, results, numbers))
        elif chosen:
            rows = groups.rows.take(pa.array(chosen))
            step.out.append(self.emitted(rows, [results[i] for i in chosen], numbers[chosen]))


def _stored_text(model: Any) -> str:
    try:
        return model_text(model)
    except NotStorableError as error:
        raise StateError(
            "HR-LEARN-005",
            f"a model has come to hold {error}, which cannot be stored",
            "This is a defect of headrace; please report it with the model's parameters.",
        ) from error


def _integers(column: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(column.fill_null(0).to_numpy())


def _visible(row: pa.Table) -> pa.Table:
    return row.drop_columns([HASH])


def hidden_of(rows: pa.Table) -> list[str]:
    """The columns that say when and where from rows are."""
    return [n for n in (TIME, SOURCE, OFFSET) if n in rows.column_names]


def not_finite(rows: pa.Table, names: Sequence[str]) -> tuple[np.ndarray, list[str]] | None:
    """Which rows have a column that is no finite number, and why; a null is none."""
    bad, reasons = np.zeros(rows.num_rows, np.bool_), dict[int, str]()
    for name in names:
        if not pa.types.is_floating(rows.schema.field(name).type):
            continue
        finite = pc.fill_null(pc.is_finite(rows.column(name)), True).to_numpy()
        for i in np.flatnonzero(~finite).tolist():
            value = rows.column(name)[i].as_py()
            reasons.setdefault(i, f"the column {name!r} is {value}, which no model can learn")
        bad |= ~finite
    return (bad, [reasons[i] for i in sorted(reasons)]) if reasons else None
