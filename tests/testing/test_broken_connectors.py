"""The suites that ship to users fail on connectors that lose, double or change rows."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.sources import open_source
from headrace.testing import InputCase, InputSuite, OutputCase, OutputSuite, input_suite
from headrace.testing.another_process import in_another_process

ROWS = [{"n": i, "name": f"row {i}"} for i in range(60)]


@dataclass
class Table(hr.Output):
    """A table of SQLite that is right for one driver; the broken ones differ in `write`."""

    path: str
    kind = "broken-none"

    @property
    def place(self) -> str:
        return self.path

    def open(self, schema: Any) -> None:
        with sqlite3.connect(self.path) as db:
            db.execute(f"create table if not exists held ({', '.join(schema.names)})")
            db.execute("create table if not exists delivered (producer text primary key, epoch)")

    def delivered(self) -> dict[str, int]:
        if not Path(self.path).exists():
            return {}
        with sqlite3.connect(self.path) as db:
            there = db.execute("select 1 from sqlite_master where name = 'delivered'").fetchone()
            return dict(db.execute("select producer, epoch from delivered")) if there else {}

    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        if self.delivered().get(producer, -1) < epoch:
            values = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
            db = sqlite3.connect(self.path, isolation_level=None)
            self.write(db, values, [producer, epoch])
            db.close()

    def write(self, db: sqlite3.Connection, values: Any, done: Any) -> None:
        db.execute("begin")
        db.executemany("insert into held values (?, ?, ?)", values)
        db.execute("insert or replace into delivered values (?, ?)", done)
        db.execute("commit")


@dataclass
class RowsThenEpoch(Table):
    kind = "broken-rows-then-epoch"

    def write(self, db: sqlite3.Connection, values: Any, done: Any) -> None:
        db.execute("begin")
        db.executemany("insert into held values (?, ?, ?)", values)
        db.execute("commit")
        db.execute("insert or replace into delivered values (?, ?)", done)


@dataclass
class EpochThenRows(Table):
    kind = "broken-epoch-then-rows"

    def write(self, db: sqlite3.Connection, values: Any, done: Any) -> None:
        db.execute("insert or replace into delivered values (?, ?)", done)
        db.execute("begin")
        db.executemany("insert into held values (?, ?, ?)", values)
        db.execute("commit")


@dataclass
class OnOneLine(Table):
    kind = "broken-on-one-line"

    def write(self, db: sqlite3.Connection, values: Any, done: Any) -> None:
        db.execute("begin")
        db.executemany("insert into held values (?, ?, ?)", values)
        [db.execute("commit"), db.execute("insert or replace into delivered values (?, ?)", done)]


@dataclass
class RowByRow(Table):
    kind = "broken-row-by-row"

    def write(self, db: sqlite3.Connection, values: Any, done: Any) -> None:
        for row in values:
            db.execute("insert into held values (?, ?, ?)", row)
        db.execute("insert or replace into delivered values (?, ?)", done)


@dataclass
class EpochInAFile(Table):
    """At least once, but a file says that rows are there before they are."""

    kind = "broken-epoch-in-a-file"
    delivered = hr.Output.delivered

    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        done = Path(f"{self.path}.epoch")
        if done.exists() and int(done.read_text()) >= epoch:
            return
        done.write_text(str(epoch))
        values = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
        with sqlite3.connect(self.path) as db:
            db.executemany("insert into held values (?, ?, ?)", values)


def make(kind: type[Table]) -> Any:
    def case(folder: Path) -> OutputCase:
        path = folder / "out.db"

        def rows() -> list[Any]:
            with sqlite3.connect(path) as db:
                there = db.execute("select 1 from sqlite_master where name = 'held'").fetchone()
                return sorted(db.execute("select * from held").fetchall()) if there else []

        sqlite3.connect(path).close()
        return OutputCase.of(kind(str(path)), folder, rows)

    return case


@dataclass
class Right(Table):
    """Rows and epoch in one transaction that locks the table before it looks."""

    kind = "broken-right"

    def put(self, rows: list[Any]) -> list[Any]:
        return rows

    def last(self, db: Any, producer: str) -> int:
        asked = "select coalesce(max(epoch), -1) from delivered where producer = ?"
        return int(db.execute(asked, [producer]).fetchone()[0])

    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        values = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
        with sqlite3.connect(self.path, isolation_level=None) as db:
            db.execute("begin immediate")
            if self.last(db, producer) < epoch:
                db.executemany("insert into held values (?, ?, ?)", self.put(values))
                done = (producer, epoch)
                db.execute("insert or replace into delivered values (?, ?)", done)
            db.execute("commit")


@dataclass
class LooksBeforeTheLock(Right):
    kind = "broken-looks-before"

    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        with sqlite3.connect(self.path) as db:
            done = self.last(db, producer) >= epoch
        if not done:
            values = list(zip(*(c.to_pylist() for c in rows.columns), strict=True))
            with sqlite3.connect(self.path, isolation_level=None) as db:
                db.execute("begin immediate")
                db.executemany("insert into held values (?, ?, ?)", values)
                done_now = (producer, epoch)
                db.execute("insert or replace into delivered values (?, ?)", done_now)
                db.execute("commit")


@dataclass
class OneForAll(Right):
    kind = "broken-one-for-all"

    def last(self, db: Any, producer: str) -> int:
        return int(db.execute("select coalesce(max(epoch), -1) from delivered").fetchone()[0])


@dataclass
class EqualRowsOnce(Right):
    kind = "broken-equal-once"

    def put(self, rows: list[Any]) -> list[Any]:
        return [*dict.fromkeys(rows)]


@dataclass
class OnePage(Right):
    kind = "broken-one-page"

    def put(self, rows: list[Any]) -> list[Any]:
        return rows[:1000]


@dataclass
class NoNulls(Right):
    kind = "broken-no-nulls"

    def put(self, rows: list[Any]) -> list[Any]:
        return [row for row in rows if row[2] is not None]


@dataclass
class Trimmed(Right):
    kind = "broken-trimmed"

    def put(self, rows: list[Any]) -> list[Any]:
        return [(e, n, text and text.strip()) for e, n, text in rows]


def look_at(kind: type[Table], fails: str, tmp_path_factory: Any) -> None:
    suite, case = OutputSuite(), make(kind)
    suite.test_epochs_add_up(case, tmp_path_factory.mktemp("calm"))
    test = getattr(suite, fails)
    test(case, tmp_path_factory if "stopped" in fails else tmp_path_factory.mktemp("place"))


STOPPED = "test_a_driver_stopped_in_the_output_while_another_delivers_changes_nothing"
EQUAL = "test_equal_rows_and_any_number_of_rows_arrive"
TEXTS = "test_any_text_arrives_as_it_is_or_its_batch_fails"
OTHERS = "test_rows_of_another_job_do_not_count_as_those_of_this_one"


@pytest.mark.constants
@pytest.mark.parametrize(
    ("kind", "fails"),
    [
        (LooksBeforeTheLock, STOPPED), (RowsThenEpoch, STOPPED), (EqualRowsOnce, EQUAL),
        (OnePage, EQUAL), (NoNulls, TEXTS), (Trimmed, TEXTS), (OneForAll, OTHERS),
    ],
)  # fmt: skip
def test_an_output_that_loses_or_doubles_rows_fails(kind, fails, tmp_path_factory):
    with pytest.raises(AssertionError):
        look_at(kind, fails, tmp_path_factory)


@pytest.mark.constants
@pytest.mark.parametrize("passes", [STOPPED, EQUAL, TEXTS, OTHERS])
def test_one_that_does_not_passes(passes, tmp_path_factory):
    look_at(Right, passes, tmp_path_factory)


BROKEN = [RowsThenEpoch, EpochThenRows, OnOneLine, RowByRow, EpochInAFile]


@pytest.mark.constants
@pytest.mark.parametrize("kind", BROKEN)
def test_an_output_that_is_not_atomic_fails(kind, tmp_path_factory):
    suite = OutputSuite()
    with pytest.raises(AssertionError, match=r"(lost or doubled|half an epoch) .*, line \d+"):
        suite.test_a_crash_at_any_line_of_the_output_loses_and_doubles_nothing(
            make(kind), tmp_path_factory
        )


@pytest.mark.constants
@pytest.mark.parametrize("kind", BROKEN)
def test_crashes_between_steps_of_headrace_alone_do_not_notice(kind, tmp_path_factory):
    OutputSuite().test_a_crash_at_any_point_loses_and_doubles_nothing(make(kind), tmp_path_factory)


@pytest.mark.constants
def test_one_that_is_atomic_passes(tmp_path_factory):
    OutputSuite().test_a_crash_at_any_line_of_the_output_loses_and_doubles_nothing(
        make(Table), tmp_path_factory
    )


# Inputs.


@dataclass
class Lines(hr.Input):
    path: str
    kind = "broken-none-in"
    schema = "n bigint, name string"

    @property
    def place(self) -> str:
        return self.path

    def latest(self, split: str) -> int:
        return len(self._rows())

    def fetch(self, split: str, start: int, end: int) -> Any:
        return self._rows()[start:end]

    def _rows(self) -> list[dict[str, Any]]:
        text = Path(self.path).read_text(encoding="utf-8")
        return [json.loads(line) for line in text.splitlines()]


class ByProcess(Lines):
    kind = "broken-by-process"

    def fetch(self, split: str, start: int, end: int) -> Any:
        return [{**row, "name": f"{os.getpid()}"} for row in self._rows()[start:end]]


class ByHash(Lines):
    kind = "broken-by-hash"

    def fetch(self, split: str, start: int, end: int) -> Any:
        names = list({row["name"] for row in self._rows()})  # in an order of this process
        return [{"n": i, "name": names[i]} for i in range(start, end)]


HELD: list[dict[str, Any]] = []


class InMemory(Lines):
    """Its rows are in a variable of the module, which other processes do not fill."""

    kind = "broken-in-memory"

    def _rows(self) -> list[dict[str, Any]]:
        return HELD


class RelativePath(Lines):
    kind = "broken-relative"

    def _rows(self) -> list[dict[str, Any]]:
        with open(os.path.relpath(self.path), encoding="utf-8") as file:
            return [json.loads(line) for line in file]


class HereOnly(Lines):
    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = os.path.relpath(path)

    kind = "broken-here-only"


class ThingByProcess(Lines):
    kind = "broken-thing"

    @property
    def thing(self) -> str:
        return str(os.getpid())


@dataclass
class SplitsOfTheStart(Lines):
    """Finds new files only when it is opened."""

    kind = "broken-splits"

    def __post_init__(self) -> None:
        self._found = [str(p) for p in sorted(Path(self.path).parent.glob("*.json"))]

    def splits(self) -> list[str]:
        return self._found


class GrowingSplits(SplitsOfTheStart):
    kind = "sound-splits"

    def splits(self) -> list[str]:
        self.__post_init__()
        return self._found

    def latest(self, split: str) -> int:
        return len(Path(split).read_text(encoding="utf-8").splitlines())

    def fetch(self, split: str, start: int, end: int) -> Any:
        lines = Path(split).read_text(encoding="utf-8").splitlines()[start:end]
        return [json.loads(line) for line in lines]


@pytest.fixture
def path(tmp_path: Path) -> str:
    file = tmp_path / "rows.json"
    file.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    HELD[:] = ROWS
    return str(file)


@pytest.mark.constants
@pytest.mark.parametrize("kind", [ByProcess, ByHash, InMemory, HereOnly])
def test_an_input_whose_rows_depend_on_the_process_fails(kind, path):
    case, suite = InputCase(lambda: kind(path), ROWS), InputSuite()
    with pytest.raises(AssertionError):
        suite.test_a_range_can_be_read_again_by_another_process_with_the_same_offsets(case)


@pytest.mark.constants
def test_an_input_whose_identity_depends_on_the_process_fails(path):
    case, suite = InputCase(lambda: ThingByProcess(path), ROWS), InputSuite()
    with pytest.raises(AssertionError):
        suite.test_an_input_is_what_it_was_however_often_it_is_opened(case)


@dataclass
class OneAfterTheOther(Lines):
    """Reads on from where it is, wherever it is asked to read."""

    kind = "broken-one-after-the-other"

    def fetch(self, split: str, start: int, end: int) -> list[Any]:
        at = getattr(self, "_at", start)
        self._at = (at + end - start) % len(ROWS)
        rows: list[Any] = [*self._rows(), *self._rows()][at : at + end - start]
        return rows


@dataclass
class NewestFirst(Lines):
    """The last rows there are, so that a number is another row as soon as one more arrives."""

    kind = "broken-newest-first"

    def fetch(self, split: str, start: int, end: int) -> list[Any]:
        newest: list[Any] = self._rows()[::-1]
        return newest[start:end]


def growing(kind: type[Lines], path: str, rows: list[Any]) -> InputCase:
    def more() -> None:
        with open(path, "a") as file:
            file.write(json.dumps({"n": 999, "name": "more"}) + "\n")

    return InputCase(lambda: kind(path), rows, more)


@pytest.mark.constants
def test_an_input_that_cannot_go_back_fails(path):
    with pytest.raises(AssertionError):
        InputSuite().test_a_range_is_the_same_in_whatever_order_ranges_are_read(
            InputCase(lambda: OneAfterTheOther(path), ROWS)
        )


@pytest.mark.constants
def test_an_input_whose_rows_move_when_more_arrive_fails(path):
    suite = InputSuite()
    with pytest.raises(AssertionError):
        suite.test_rows_stay_where_they_are_when_more_arrive(growing(NewestFirst, path, ROWS[::-1]))
    suite.test_rows_stay_where_they_are_when_more_arrive(growing(Lines, path, ROWS))
    suite.test_a_range_is_the_same_in_whatever_order_ranges_are_read(growing(Lines, path, ROWS))


@pytest.mark.constants
@pytest.mark.parametrize("kind", [Lines, RelativePath])
def test_an_input_that_reads_the_same_anywhere_passes(kind, path):
    case, suite = InputCase(lambda: kind(path), ROWS), InputSuite()
    suite.test_a_range_can_be_read_again_by_another_process_with_the_same_offsets(case)
    suite.test_an_input_is_what_it_was_however_often_it_is_opened(case)


@pytest.mark.constants
@pytest.mark.parametrize("kind", [SplitsOfTheStart, GrowingSplits])
def test_an_input_that_does_not_find_new_splits_fails(kind, path, monkeypatch):
    def add() -> dict[str, Any]:
        new = Path(path).with_name("z.json")
        new.write_text(json.dumps(ROWS[0]) + "\n")
        return {str(new): ROWS[:1]}

    monkeypatch.setattr(input_suite, "_SOON", 0.1)
    case, suite = InputCase(lambda: kind(path), {path: ROWS}, add_split=add), InputSuite()
    with pytest.raises(AssertionError) if kind is SplitsOfTheStart else nullcontext():
        suite.test_a_new_split_is_found_while_the_input_is_open_and_at_the_next_start(case)


@pytest.mark.constants
def test_an_input_that_drops_bad_data_fails(path, tmp_path):
    """JSON is spoiled, and the input reads it as text, to which everything fits."""

    def open_one() -> Any:
        return open_source(f"files:{path}", format="text", folder=str(tmp_path / "job"))

    def spoil() -> None:
        with open(path, "a") as file:
            file.write("{\n")

    rows = [{"value": json.dumps(row)} for row in ROWS]
    with pytest.raises(AssertionError):
        InputSuite().test_bad_data_is_set_aside_with_a_reason_and_the_rows_around_it_are_read(
            InputCase(open_one, rows, spoil)
        )


@pytest.mark.constants
def test_another_process_may_print_and_die():
    assert in_another_process(_print, "x") == "x"
    with pytest.raises(AssertionError, match="ended: 3"):
        in_another_process(os._exit, 3)
    assert in_another_process(os.getpid) != os.getpid()


def _print(text: str) -> str:
    print(text)
    return text
