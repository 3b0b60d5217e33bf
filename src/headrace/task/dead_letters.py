"""Dead letters: rows on which something failed, stored as data instead of stopping the job.

A letter names the input, split and offset it came from, the step that failed, the error
with the user's own traceback, and holds the record's bytes; in the job's own output it also holds
what sends it again (`LETTER_SCHEMA`). With `on_error="fail"` the
first one stops the job as a `StepError` instead.
"""

from __future__ import annotations

import base64
import json
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.chunk import OFFSET, SOURCE, visible
from headrace.epoch.values import Epoch
from headrace.errors import HeadraceError, Site, StepError, is_users, said_by, storable
from headrace.plan.nodes import LETTER_SCHEMA
from headrace.sources import Source
from headrace.state.manifest import Split
from headrace.task.letters import Reentry, packed

_QUOTED = 300  # characters of an error in an example
_PACKAGE = str(Path(__file__).parent.parent)


class DeadLetters:
    """The dead letters of one task."""

    def __init__(
        self,
        epoch: Epoch,
        on_error: str,
        sources: Mapping[str, Source] | None = None,
    ) -> None:
        self._epoch, self._on_error, self._sources = epoch, on_error, sources or {}
        self._splits = {s.id: s for s in epoch.splits}
        self._letters: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._letters)

    def add(
        self,
        step: str,
        rows: pa.Table,
        errors: Sequence[BaseException | str],
        raw: Mapping[int, bytes] | None = None,
        entry: Reentry | None = None,
    ) -> None:
        """One letter for each of `rows`; `raw` has the original bytes by offset, if known.

        `entry` says where they go in if they are sent again; None: they cannot be.
        """
        records = _records(rows)
        sources = _column(rows, SOURCE)
        offsets = _column(rows, OFFSET)
        again = _again(entry, rows.num_rows)
        for record, source, offset, error, entering in zip(
            records, sources, offsets, errors, again, strict=True
        ):
            payload = (raw or {}).get(offset, record)
            self._add(step, source, offset, payload, error, entering)

    def repeat(self, letter: Mapping[str, Any], why: str) -> None:
        """A letter that cannot be sent again is a letter again, and says why."""
        place = tuple(letter[name] for name in ("input", "split", "offset", "place"))
        again = tuple(letter[name] for name in ("enters", "port", "row"))
        self._add_at(place, letter["step"], letter["record"], why, again)

    def _add(
        self,
        step: str,
        source: int | None,
        offset: int | None,
        record: bytes,
        error: Any,
        again: tuple[Any, ...],
    ) -> None:
        split = self._splits.get(source if source is not None else -1)
        place: tuple[Any, ...] = (None, None, None, None)
        if split is not None:
            place = (split.input, split.name, offset, self._where(split, offset))
        self._add_at(place, step, record, error, again)

    def _add_at(
        self, place: tuple[Any, ...], step: str, record: bytes, error: Any, again: tuple[Any, ...]
    ) -> None:
        if self._on_error == "fail":
            raise _step_error(step, place, record, error)
        text = said_by(error)
        trace = "" if isinstance(error, str) else user_trace(error)
        epoch = (self._epoch.number, self._epoch.clock)
        self._letters.append((*place, step, text, trace, record, *epoch, *again))

    def _where(self, split: Split, offset: int | None) -> str | None:
        """The record's place in words; None if the input has no such place."""
        source = self._sources.get(split.input)
        if source is None or offset is None:
            return None
        try:
            return source.where(split.name, offset)
        except (HeadraceError, OSError):
            return None  # what the input knew of it is gone

    def examples(self) -> dict[str, dict[str, str]]:
        """The first letter of each step, for whoever asks why there is no output."""
        examples: dict[str, dict[str, str]] = {}
        for input, split, offset, place, step, error, *_ in self._letters:
            where = place or (f"input {input!r} split {split} offset {offset}" if input else "")
            examples.setdefault(step, {"error": error[:_QUOTED], "place": where})
        return examples

    def table(self) -> pa.Table:
        schema = LETTER_SCHEMA
        columns = zip(*self._letters, strict=True) if self._letters else ([] for _ in schema)
        arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def places(self) -> list[tuple[str, str, int]]:
        """Input, split and offset of the letters that are records of an input."""
        return sorted({(i, s, o) for i, s, o, *_ in self._letters if i is not None})


@contextmanager
def errors_named_by_step(step: str, written: Site | None) -> Iterator[None]:
    """The user's code runs inside, over many rows at once: if it raises, say in which step.

    `written` is where the step was, for errors that come from no line of the user's.
    """
    try:
        yield
    except HeadraceError as error:
        error.site = error.site or written
        raise
    except Exception as error:
        if not _foreign(error):  # our own mistake: its traceback says more than we could
            raise
        raise StepError(
            "HR-STEP-001",
            f"step {step!r} failed: {said_by(error)}",
            "Correct the function; the rows are read again when the job is started again.",
            site=_user_site(error) or written,
        ) from error


def _again(entry: Reentry | None, count: int) -> Iterable[tuple[Any, ...]]:
    """For each row the step and the port that it enters, and itself; nulls if it cannot."""
    if entry is None:
        return [(None, None, None)] * count
    return [(entry.step, entry.port, row) for row in packed(entry.rows)]


def _column(rows: pa.Table, name: str) -> list[Any]:
    if name not in rows.column_names:
        return [None] * rows.num_rows
    return rows.column(name).to_pylist()  # type: ignore[no-any-return]


def _records(rows: pa.Table) -> Iterable[bytes]:
    seen = visible(rows)
    names, columns = seen.column_names, [_values(c) for c in seen.columns]
    lines = zip(*columns, strict=True) if columns else ((),) * rows.num_rows
    return (
        json.dumps(dict(zip(names, line, strict=True)), default=_text).encode() for line in lines
    )


def _text(value: Any) -> str:
    """What JSON has no type for, in the text that JSON inputs read."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """What a column holds; a time that Python does not have as the number that it is."""
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (OverflowError, ValueError):
        if pa.types.is_nested(column.type):
            return ["a time that is not within the years 1 to 9999"] * len(column)
        days = pa.types.is_date32(column.type)
        return column.cast(pa.int32() if days else pa.int64()).to_pylist()  # type: ignore[no-any-return]


def _step_error(step: str, place: tuple[Any, ...], record: bytes, error: Any) -> StepError:
    where = f"input {place[0]!r}, split {place[1]!r}, offset {place[2]}" if place[0] else "no input"
    if place[3] and not place[3].endswith(f" offset {place[2]}"):
        where += f", {place[3]}"
    shown = record[:500].decode(errors="replace")
    return StepError(
        "HR-STEP-001",
        f"step {step!r} failed on a record: {said_by(error)}; {where}; record {shown}",
        'Correct the step, or send bad records to the dead letters with on_error="dead".',
        site=None if isinstance(error, str) else _user_site(error),
    )


def _user_site(error: BaseException) -> Site | None:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if is_users(f.filename)]
    return Site(frames[-1].filename, frames[-1].lineno or 0) if frames else None


def user_trace(error: BaseException) -> str:
    """The traceback without our own frames."""
    frames = _foreign(error)
    last = traceback.format_exception_only(error)
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames), *last]
    return storable("".join(lines))


def _foreign(error: BaseException) -> list[traceback.FrameSummary]:
    """The lines of its traceback that are not ours: the user's, and those of libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f for f in frames if not f.filename.startswith(_PACKAGE)]
