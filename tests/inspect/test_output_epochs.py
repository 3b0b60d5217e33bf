"""Which epochs outputs show, asked after a crash at every durable step of an epoch.

One job writes the same rows to outputs of many kinds. After each crash every place is read, and
must hold exactly the rows of the epochs that the answer names; after the next start has published
what was missing, all of them hold the same.
"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from deltalake import DeltaTable
from typer.testing import CliRunner

import headrace as hr
from headrace.cli.app import app
from headrace.inspect.output_epochs import JobOutputs, outputs
from headrace.state import faults
from headrace.testing import Driver
from tests.sinks.lake_cases import loaded, sqlite_catalog
from tests.sinks.webhook_cases import receiver

BATCH, EPOCHS = 4, 3
ROWS = [{"n": n} for n in range(BATCH * EPOCHS)]


class Crash(Exception):
    pass


def build(place: Path) -> hr.Job:
    job = hr.Job("many")
    rows = job.read(hr.rows(ROWS, "n bigint"), name="rows")
    rows.write(f"files:{place}/files", name="files")
    rows.write("collect:", name="collect")
    rows.write("log:numbers", log=str(place / "log"), name="log")
    rows.write(f"sql:sqlite:{place}/rows.db", table="numbers", name="sql")
    rows.write(f"delta:{place}/delta", name="delta")
    rows.write("iceberg:lake.numbers", catalog=sqlite_catalog(place), name="iceberg")
    rows.write(f"webhook:{receiver().url}{place}", name="hook")
    rows.where("n >= 8").write("collect:", name="late")  # nothing for it in the first two epochs
    return job


def driver(place: Path) -> Driver:
    place.mkdir(exist_ok=True)
    return Driver(build(place), place / "job", max_batch=BATCH, tasks=1)


def seen(place: Path) -> dict[str, list[int]]:
    """What readers of the places see, each by its own library."""
    log, job = hr.EmbeddedLog(place / "log"), str(place / "job")
    tables = [t for _, t in log.read("numbers", 0, 0)]
    with sqlite3.connect(place / "rows.db") as database:
        rows = [n for (n,) in database.execute("SELECT n FROM numbers")]
    library = loaded(place)
    lake = library.load_table("lake.numbers").scan().to_arrow()["n"].to_pylist()
    library.close()
    found = {
        "files": hr.read_output(place / "files")["n"].to_pylist(),
        "collect": hr.collected(job, "collect")["n"].to_pylist(),
        "log": [n for t in tables for n in t["n"].to_pylist()],
        "sql": rows,
        "delta": DeltaTable(place / "delta").to_pyarrow_table()["n"].to_pylist(),
        "iceberg": lake,
        "hook": [r["n"] for r in receiver().rows.get(str(place), [])],
        "late": hr.collected(job, "late")["n"].to_pylist(),
    }
    return {name: sorted(numbers) for name, numbers in found.items()}


def check(place: Path, found: JobOutputs) -> None:
    rows = seen(place)
    for output in found.outputs:
        if output.name == "dead":
            continue
        assert output.shows is not None, output
        of = [n for n in range(output.shows * BATCH) if output.name != "late" or n >= 8]
        more = [n for n in range((output.shows + 1) * BATCH) if n < len(ROWS)]
        exact = rows[output.name] == of
        assert exact or (output.name == "hook" and rows["hook"] == more), (output, rows)


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The points that an undisturbed second epoch passes."""
    place, passed = tmp_path_factory.mktemp("calm") / "p", list[str]()
    calm = driver(place)
    calm.epoch()
    with faults.hooked(passed.append):
        calm.epoch()
    calm.close()
    return passed


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_after_a_crash_anywhere_every_place_shows_what_is_said(steps, tmp_path):
    behind = set()
    for at, name in enumerate(steps, 1):
        if steps.index(name) + 1 != at and name != "sink.publish":
            continue
        place, left = tmp_path / str(at), [at]

        def step(name: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] == 0:
                raise Crash(name)

        started = driver(place)
        started.epoch()
        with pytest.raises(Crash), faults.hooked(step):
            started.epoch()
        crashed = outputs(place / "job")
        check(place, crashed)
        assert crashed.common in (crashed.epoch, crashed.epoch - 1)
        behind |= {o.name for o in crashed.outputs if o.shows != crashed.epoch}

        again = driver(place)  # has published what was missing, before it reads anything
        found = outputs(place / "job")
        check(place, found)
        assert found.common == found.epoch >= crashed.epoch
        assert {o.shows for o in found.outputs} == {found.epoch}
        again.close()
    assert behind >= {"files", "log", "sql", "delta", "iceberg", "hook"}


@pytest.fixture
def done(tmp_path: Path) -> Path:
    finished = driver(tmp_path)
    finished.drain()
    finished.close()
    return tmp_path


def test_it_is_printed_and_the_places_tell_it_themselves(done):
    found = outputs(done / "job")
    assert str(found).splitlines()[0] == "epoch 3 is committed; every output shows it"
    by_name = {o.name: o for o in found.outputs}
    assert [by_name[n].holds for n in ("files", "log", "hook")] == [3, 3, None]
    producer = by_name["sql"].producer
    assert producer is not None

    with sqlite3.connect(done / "rows.db") as database:
        asked = database.execute("SELECT producer, epoch FROM headrace_epochs").fetchall()
    assert asked == [(producer, 3)]
    assert DeltaTable(done / "delta").transaction_version(by_name["delta"].producer) == 3
    library = loaded(done)
    properties = library.load_table("lake.numbers").properties
    library.close()
    key = f"headrace.producer.{by_name['iceberg'].producer}"
    assert properties[key].partition(":")[0] == "3"
    assert hr.EmbeddedLog(done / "log").producers("numbers") == {by_name["log"].producer: 3}
    keys = receiver().keys[str(done)]
    assert keys[-1] == f"{by_name['hook'].producer}/3/0"


def test_an_output_that_was_lost_or_cannot_be_asked_is_said(done):
    (done / "rows.db").unlink()
    by_name = {o.name: o for o in outputs(done / "job").outputs}
    assert by_name["sql"].shows == 0 and "deleted or replaced" in by_name["sql"].note
    (done / "delta" / "_delta_log" / "00000000000000000001.json").write_text("{")
    by_name = {o.name: o for o in outputs(done / "job").outputs}
    assert by_name["delta"].shows is None and "cannot be asked" in by_name["delta"].note
    assert outputs(done / "job").common is None


def test_the_command_shows_it(done):
    shown = CliRunner().invoke(app, ["outputs", str(done / "job")]).stdout.splitlines()
    assert shown[0] == "many: epoch 3 is committed; every output shows it"
    assert shown[1].split() == ["output", "shows", "last", "holds", "place", "note"]
    assert [line.split()[:4] for line in shown[2:4]] == [
        ["files", "3", "3", "3"],
        ["collect", "3", "3", "3"],
    ]
    data = json.loads(CliRunner().invoke(app, ["outputs", str(done / "job"), "--json"]).stdout)
    assert data["common"] == data["epoch"] == 3


def test_a_folder_without_an_epoch_is_refused(tmp_path):
    with pytest.raises(hr.StateError) as refused:
        outputs(tmp_path)
    assert refused.value.code == "HR-RUN-020"
