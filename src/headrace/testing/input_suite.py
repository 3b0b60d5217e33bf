"""What every input promises, as a suite for pytest: subclass `InputSuite`, give it a `case`.

Every row comes once and in order however a job cuts the input; a range is the same when it is read
again, by another process; a restart goes on where the manifest says; a check changes nothing, and
refuses what the input has not reached. The project's own inputs run this suite.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import SkipTest

import cloudpickle
import numpy as np
import pyarrow as pa

from headrace.errors import InputError
from headrace.sources import Source
from headrace.sources.contract import MISFIT, RAW
from headrace.testing.another_process import in_another_process

_CUTS = ((130, 2), (999, 7), (10**6, 3))  # rows of an epoch, and tasks
_SOON = 20.0  # seconds
_GAPS = 0.2  # by how much an estimate of rows may be wrong


@dataclass
class InputCase:
    """An input that can be opened again and again, as by a job that is restarted."""

    open: Callable[[], Source]
    rows: Sequence[Mapping[str, Any]] | Mapping[str, Sequence[Mapping[str, Any]]] = ()
    """All rows, as dicts; by split, if there are several."""
    spoil: Callable[[], object] | None = None
    """Puts a record that does not fit the columns behind the rows; None if there cannot be one."""
    add_split: Callable[[], Mapping[str, Sequence[Mapping[str, Any]]]] | None = None
    """Adds splits, and returns their rows; None if the input has the same splits for ever."""
    more: Callable[[], object] | None = None
    """Lets rows arrive in the input, where that can be tested."""

    def of(self, split: str) -> list[dict[str, Any]]:
        """The rows that the split must have."""
        rows = self.rows[split] if isinstance(self.rows, Mapping) else self.rows
        return [dict(row) for row in rows]


class InputSuite:
    """Subclass me in a test module, with a fixture `case` that returns an `InputCase`.

    The input must have at least twenty rows in each split, and must not grow meanwhile.
    """

    def test_every_row_is_read_once_in_order_however_it_is_cut(self, case: Any) -> None:
        for size, pieces in _CUTS:
            source = case.open()
            for split in source.splits():
                assert read_split(source, split, None, size, pieces)[0] == case.of(split)

    def test_small_steps_reach_the_end(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            begin = source.start(split)
            end = source.clamp(split, begin, source.latest(split), 20)
            steps = list(_small_steps(source, split, begin, end))
            assert steps[-1] == end and steps == sorted(set(steps))

    def test_a_range_can_be_read_again_by_another_process_with_the_same_offsets(
        self, case: Any
    ) -> None:
        source = case.open()
        for split in source.splits():
            size = max(1, len(case.of(split)) // 3)
            a = source.clamp(split, source.start(split), source.latest(split), size)
            b = source.clamp(split, a, source.latest(split), size)

            first = chunks(source, split, a, b, 2)
            second = in_another_process(chunks, case.open(), split, a, b, 5)

            assert pa.concat_tables(t for t, _ in first) == pa.concat_tables(t for t, _ in second)
            assert [o for _, p in first for o in p] == [o for _, p in second for o in p]
            assert all(a <= o < b for _, p in first for o in p)

    def test_a_range_is_the_same_in_whatever_order_ranges_are_read(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            start, end = source.start(split), source.latest(split)
            ranges = source.cut(split, start, source.clamp(split, start, end, 100), 5)
            in_order = [[t for t, _ in source.read(r)] for r in ranges]
            backwards = [[t for t, _ in source.read(r)] for r in reversed(ranges)]
            assert backwards[::-1] == in_order

    def test_rows_stay_where_they_are_when_more_arrive(self, case: Any) -> None:
        if case.more is None:
            import pytest

            pytest.skip("give InputCase more=, a function that lets rows arrive")
        source = case.open()
        ends = {split: source.latest(split) for split in source.splits()}
        before = {split: chunks(source, split, source.start(split), ends[split]) for split in ends}

        case.more()

        later = case.open()
        assert set(ends) <= {*later.splits()}
        assert any(later.latest(split) > end for split, end in ends.items())
        for split, end in ends.items():
            now = chunks(later, split, later.start(split), end)
            assert pa.concat_tables(t for t, _ in now) == pa.concat_tables(
                t for t, _ in before[split]
            )

    def test_a_restarted_source_goes_on_where_the_manifest_says(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            size = max(1, len(case.of(split)) // 3)
            at = source.clamp(split, source.start(split), source.latest(split), size)
            before = sum(t.num_rows for t, _ in chunks(source, split, source.start(split), at))
            source.commit({split: at})

            rest, offsets = read_split(case.open(), split, json.loads(json.dumps(at)))

            assert rest == case.of(split)[before:]
            assert offsets[0] >= at

    def test_a_bounded_input_has_ended_exactly_at_its_end(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            end = source.latest(split)
            assert source.ended(split, end) == source.bounded
            assert not source.ended(split, source.clamp(split, source.start(split), end, 10))

    def test_the_number_of_rows_is_about_right(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            start, end, count = source.start(split), source.latest(split), len(case.of(split))
            wrong = abs(source.rows(split, start, end) - count)
            assert wrong <= count * _GAPS
            assert source.rows(split, end, end) == 0
            assert source.cut(split, end, end, 4) == []
            assert source.clamp(split, end, end, 4) == end

    def test_a_place_can_be_named(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            source.latest(split)
            assert source.where(split, source.start(split))

    def test_an_input_that_has_become_shorter_is_refused(self, case: Any) -> None:
        source = case.open()
        for split in source.splits():
            end = source.latest(split)
            error = refused_by(source.rows, split, end + 1, end)
            assert error.code == "HR-INPUT-007"
            place = source.identity()["place"] or source.identity()["kind"]
            assert source.in_words(split) in error.message
            assert place.rpartition("/")[2] in error.message

    def test_an_input_is_what_it_was_however_often_it_is_opened(self, case: Any) -> None:
        first, second = case.open().identity(), in_another_process(_identity, case.open())

        assert first == second == json.loads(json.dumps(first))
        assert sorted(first) == ["kind", "place", "thing"]
        assert all(isinstance(v, str) for v in first.values())

    def test_a_check_changes_nothing_and_is_content_with_where_a_job_may_stand(
        self, case: Any, tmp_path: Path
    ) -> None:
        source = case.open()
        stands = [{}, *({s: source.start(s), **_middles(source)} for s in source.splits())]
        middles, ends = _middles(source), {s: source.latest(s) for s in source.splits()}
        source.close()
        fresh, before = case.open(), snapshot(tmp_path)

        for offsets in (*stands, middles, ends):
            fresh.check(offsets)

        assert snapshot(tmp_path) == before
        for split in fresh.splits():
            assert not fresh.has_more(split, ends[split])
            assert fresh.has_more(split, middles[split])
        assert snapshot(tmp_path) == before

    def test_bad_data_is_set_aside_with_a_reason_and_the_rows_around_it_are_read(
        self, case: Any
    ) -> None:
        if case.spoil is None:
            raise SkipTest("this input has no records that do not fit")
        case.spoil()
        for size, pieces in _CUTS:
            source, reasons = case.open(), list[str]()
            source.discover()
            for split in source.splits():
                assert read_split(source, split, None, size, pieces, reasons)[0] == case.of(split)
            assert len(reasons) == 1 and reasons[0]

    def test_a_new_split_is_found_while_the_input_is_open_and_at_the_next_start(
        self, case: Any
    ) -> None:
        if case.add_split is None:
            raise SkipTest("this input has the same splits for ever")
        source = case.open()
        source.discover()
        known = {split: source.latest(split) for split in source.splits()}
        added = case.add_split()
        restarted = case.open()
        restarted.check(known)
        for one in (source, restarted):
            assert _discovered(one, len(known) + len(added)) == {*known, *added}
            for split, end in known.items():
                assert not one.has_more(split, end)
            for split, rows in added.items():
                assert read_split(one, split)[0] == [dict(row) for row in rows]

    def test_a_position_that_the_input_has_not_reached_is_refused_at_the_start(
        self, case: Any
    ) -> None:
        source = case.open()
        for split in source.splits():
            wrong = {split: source.latest(split) + 1}
            assert refused_by(source.check, wrong).code in ("HR-INPUT-007", "HR-INPUT-009")


# Reading as an engine does.


def again(value: Any) -> Any:
    """The value after a journey to a task."""
    return cloudpickle.loads(cloudpickle.dumps(value))


def _identity(source: Source) -> dict[str, str]:
    return source.identity()


def epochs(source: Source, split: str, start: Any, rows: int) -> Iterator[tuple[Any, Any]]:
    """From `start` to the latest, about `rows` records at a time."""
    while (end := source.latest(split)) != start:
        stop = source.clamp(split, start, end, rows)
        assert start < stop <= end
        yield start, stop
        start = json.loads(json.dumps(stop))


def chunks(source: Source, split: str, start: Any, end: Any, pieces: int = 3) -> list[Any]:
    """What the tasks of an epoch read."""
    ranges = source.cut(split, start, end, pieces)
    assert len(ranges) <= pieces
    assert [r.start for r in ranges] + [end] == [start] + [r.end for r in ranges]
    task = again(source)
    return [chunk for r in ranges for chunk in task.read(again(r))]


def read_split(
    source: Source,
    split: str,
    start: Any = None,
    rows: int = 1000,
    pieces: int = 3,
    reasons: list[str] | None = None,
) -> tuple[list[dict[str, Any]], list[int]]:
    """All rows of a split and their offsets, read epoch by epoch.

    Why a record is bad goes to `reasons`; without them none may be.
    """
    found, offsets = list[dict[str, Any]](), [np.zeros(0, np.int64)]
    start = source.start(split) if start is None else start
    for a, b in epochs(source, split, start, rows):
        for table, positions in chunks(source, split, a, b, pieces):
            assert len(positions) == table.num_rows and positions.dtype == np.int64
            offsets.append(positions)
            found += typed(source, table, reasons).to_pylist()
    every = np.concatenate(offsets)
    assert (np.diff(every) > 0).all()
    return found, every.tolist()


def typed(source: Source, chunk: pa.Table, reasons: list[str] | None = None) -> pa.Table:
    """A chunk's good rows, decoded if they must be."""
    errors = list[str]()
    if source.raw:
        assert chunk.column_names[0] == RAW
        chunk, bad, errors = source.decode(chunk)
        assert bad.sum() == len(errors)
    elif MISFIT in chunk.column_names:
        why = chunk.column(MISFIT)
        chunk, errors = (
            chunk.filter(why.is_null()).drop_columns([MISFIT]),
            why.drop_null().to_pylist(),
        )
    assert chunk.schema.equals(source.schema)
    assert reasons is not None or not errors, errors
    if reasons is not None:
        reasons += errors
    return chunk


def _discovered(source: Source, count: int) -> set[str]:
    """The splits, once there are so many; what a server has made it soon tells."""
    end = time.monotonic() + _SOON
    while len(source.splits()) < count and time.monotonic() < end:
        source.discover()
        time.sleep(0.02)
    return set(source.splits())


def refused_by(call: Callable[..., object], *args: Any, **kwargs: Any) -> InputError:
    """The error that the call must raise, with a hint."""
    try:
        call(*args, **kwargs)
    except InputError as error:
        assert error.hint
        return error
    raise AssertionError("it was not refused")


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Every file and folder there is, with what it holds."""
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def _small_steps(source: Source, split: str, start: Any, end: Any) -> Iterator[Any]:
    while start != end:
        start = source.clamp(split, start, end, 1)
        yield start


def _middles(source: Source) -> dict[str, Any]:
    """A place in each split that is neither its start nor its end."""
    return {s: source.clamp(s, source.start(s), source.latest(s), 10) for s in source.splits()}
