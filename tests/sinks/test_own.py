"""Outputs that are classes of users': refused clearly, found again, and without secrets at rest."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.writing import ALONE, expected, made, refusal, stage

import headrace as hr
from headrace.sinks import AT_LEAST_ONCE, EXACTLY_ONCE, own, reopen_sink
from headrace.state import faults
from headrace.testing import OutputCase, OutputSuite, drive


@dataclass
class Rows(hr.Output):
    """A table of SQLite, with a record of epochs."""

    path: str
    password: str = field(default="", repr=False)
    kind = "test-rows"

    @property
    def place(self) -> str:
        return self.path

    def open(self, schema: Any) -> None:
        with sqlite3.connect(self.path) as db:
            db.execute(f"create table if not exists held ({', '.join(schema.names)})")
            db.execute("create table if not exists delivered (producer text primary key, epoch)")

    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        if self.password == "wrong":
            raise PermissionError("not with this password")
        with sqlite3.connect(self.path) as db:
            db.execute("begin immediate")
            if self._recorded(db).get(producer, -1) < epoch:
                marks = ", ".join("?" * rows.num_columns)
                values = zip(*(c.to_pylist() for c in rows.columns), strict=True)
                db.executemany(f"insert into held values ({marks})", values)
                db.execute("insert or replace into delivered values (?, ?)", [producer, epoch])

    def delivered(self) -> dict[str, int]:
        if not Path(self.path).exists():
            return {}
        with sqlite3.connect(self.path) as db:
            return self._recorded(db)

    def _recorded(self, db: sqlite3.Connection) -> dict[str, int]:
        there = db.execute("select 1 from sqlite_master where name = 'delivered'").fetchone()
        return dict(db.execute("select producer, epoch from delivered")) if there else {}


@dataclass
class Lines(hr.Output):
    """A file of lines that stores no epochs."""

    path: str
    kind = "test-lines"

    @property
    def place(self) -> str:
        return self.path

    def deliver(self, rows: Any, producer: str, epoch: int) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(list(r.values())) + "\n" for r in rows.to_pylist())


def held(path: Path) -> list[tuple[Any, ...]]:
    if not path.exists():
        return []
    with sqlite3.connect(path) as db:
        return sorted(db.execute("select * from held").fetchall())


def lines(path: Path) -> list[tuple[Any, ...]]:
    texts = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return sorted(tuple(json.loads(text)) for text in texts)


CASES: dict[str, Callable[[Path], OutputCase]] = {
    "exactly once": lambda tmp: OutputCase.of(
        Rows(str(tmp / "a.db")), tmp, lambda: held(tmp / "a.db")
    ),
    "at least once": lambda tmp: OutputCase.of(
        Lines(str(tmp / "a")), tmp, lambda: lines(tmp / "a")
    ),
}


@pytest.mark.usefixtures("hasty")
class TestOwn(OutputSuite):
    @pytest.fixture(params=sorted(CASES))
    def make(self, request):
        return CASES[request.param]


def test_the_guarantee_follows_from_what_the_class_has(tmp_path):
    found = {name: case(tmp_path).open().guarantee for name, case in CASES.items()}

    assert found == {"exactly once": EXACTLY_ONCE, "at least once": AT_LEAST_ONCE}


class NoDataclass(hr.Output):
    kind = "test-plain"

    def deliver(self, rows: Any, producer: str, epoch: int) -> None: ...


@dataclass
class NoKind(NoDataclass):
    kind = ""


@dataclass
class NoDeliver(hr.Output):
    kind = "test-no-deliver"


@dataclass
class Unstored(NoDataclass):
    what: Any = None
    kind = "test-unstored"


@dataclass
class Taken(NoDataclass):
    kind = "files"


@dataclass
class LockedOut(NoDataclass):
    password: str = field(repr=False)
    kind = "test-locked-out"


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (NoKind(), "NoKind declares no kind"),
        (NoDeliver(), "NoDeliver has no deliver"),
        (NoDataclass(), "NoDataclass is not a dataclass"),
        (Unstored(object()), "Unstored has fields that JSON cannot hold"),
        (Unstored((1, 2)), "Unstored has a field 'what' that JSON does not give back"),
        (Taken(), "Taken has the kind 'files', which is Headrace's own"),
        (LockedOut("x"), "LockedOut has a secret field 'password' without a default"),
    ],
)
def test_a_class_that_could_not_be_made_again_is_refused_where_it_is_written_to(output, why):
    job = hr.Job("own")
    job.read(hr.rows([{"n": 1}])).write(output)

    with pytest.raises(hr.HeadraceError, match=why) as caught:
        job.check()
    assert "HR-OUTPUT-060" in str(caught.value) and "test_own.py" in str(caught.value)


def test_options_and_other_objects_are_refused_by_name(tmp_path):
    for output, options, why in (
        (Rows("x.db"), {"partitions": 3}, "has no option 'partitions'"),
        (object(), {}, "write needs a place, not <object"),
        (Rows, {}, "write needs a place"),
    ):
        job = hr.Job("own")
        job.read(hr.rows([{"n": 1}])).write(output, **options)  # type: ignore[arg-type]
        with pytest.raises(hr.HeadraceError, match=why):
            job.check()


def program(output: hr.Output) -> hr.Job:
    job = hr.Job("own")
    job.read(hr.rows([{"n": i} for i in range(6)])).write(output, name="out")
    return job


def crash_before_delivery(job: hr.Job, folder: Path) -> None:
    def stop(name: str) -> None:
        if name == "sink.publish.read":
            raise KeyboardInterrupt(name)

    with faults.hooked(stop), pytest.raises(KeyboardInterrupt):
        drive(job, folder, max_batch=2)


def at_rest(folder: Path) -> bytes:
    return b"".join(p.read_bytes() for p in folder.rglob("*") if p.is_file())


def test_secrets_are_not_at_rest_and_what_was_committed_is_delivered_with_them(tmp_path):
    path, job = tmp_path / "a.db", tmp_path / "job"
    crash_before_delivery(program(Rows(str(path), "geheim")), job)
    assert held(path) == [] and b"geheim" not in at_rest(job)
    assert "geheim" not in str(program(Rows(str(path), "geheim")).explain())

    drive(program(Rows(str(path), "geheim")), job)

    assert held(path) == [(i,) for i in range(6)]
    assert b"geheim" not in at_rest(job)


def test_what_waits_for_an_output_that_was_changed_is_delivered_as_it_was(tmp_path):
    first, second, job = tmp_path / "a.db", tmp_path / "b.db", tmp_path / "job"
    crash_before_delivery(program(Rows(str(first))), job)

    with pytest.raises(hr.StateError, match=r"it has written test-rows:.*a.db and now writes"):
        drive(program(Rows(str(second))), job)

    other = hr.Job("own")
    other.read(hr.rows([{"n": i} for i in range(6)])).write(Rows(str(second)), name="other")
    drive(other, job)

    assert held(first) == [(0,), (1,)] and held(second) == [(2,), (3,), (4,), (5,)]


def test_a_class_that_the_program_no_longer_has_is_refused_by_its_kind(tmp_path, monkeypatch):
    sink = made(CASES["exactly once"](tmp_path).open())
    staged, described = stage(sink, 0), sink.describe()

    with monkeypatch.context() as patch:
        patch.delitem(own._KINDS, "test-rows")
        error = refusal(reopen_sink, described, str(tmp_path / "job"), "o")
        assert error.code == "HR-OUTPUT-061" and "'test-rows'" in error.message
    changed = {**described, "fields": {"folder": "x"}}
    assert refusal(reopen_sink, changed, str(tmp_path / "job"), "o").code == "HR-OUTPUT-061"

    reopen_sink(described, str(tmp_path / "job"), "o").publish(0, staged, ALONE)
    assert held(tmp_path / "a.db") == expected(1)


def test_what_the_class_raises_names_the_method_and_loses_nothing(tmp_path):
    path, job = tmp_path / "a.db", tmp_path / "job"
    with pytest.raises(
        hr.OutputError, match=r"deliver of the output 'test-rows:.*not with"
    ) as caught:
        drive(program(Rows(str(path), "wrong")), job, max_batch=2)
    assert caught.value.code == "HR-OUTPUT-062"

    drive(program(Rows(str(path), "right")), job)

    assert held(path) == [(i,) for i in range(6)]
