"""Inputs that are classes of users': refused clearly, read exactly, continued at a restart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headrace as hr
from headrace.testing import InputCase, InputSuite, drive

ROWS = [{"n": i, "name": f"row {i} é"} for i in range(400)]


@dataclass
class Shelf(hr.Input):
    """Two files of JSON lines; each is a split."""

    folder: str
    short: int = 0
    bounded: bool = False
    kind = "test-shelf"
    schema = "n bigint, name string"

    @property
    def place(self) -> str:
        return self.folder

    def splits(self) -> list[str]:
        return sorted(p.stem for p in Path(self.folder).glob("*.json"))

    def latest(self, split: str) -> int:
        return len(self._lines(split))

    def fetch(self, split: str, start: int, end: int) -> Any:
        rows = [json.loads(line) for line in self._lines(split)[start : end - self.short]]
        return rows if split == "a" else pa.Table.from_pylist(rows)

    def _lines(self, split: str) -> list[str]:
        return (Path(self.folder) / f"{split}.json").read_text(encoding="utf-8").splitlines()


def put(folder: Path, split: str, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / f"{split}.json").open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)


class TestShelf(InputSuite):
    @pytest.fixture(params=[True, False])
    def case(self, request, tmp_path):
        put(tmp_path / "in", "a", ROWS[:250])
        put(tmp_path / "in", "b", ROWS[250:])
        folder = str(tmp_path / "in")
        rows = {"a": ROWS[:250], "b": ROWS[250:]}

        def add() -> dict[str, Any]:
            put(tmp_path / "in", "c", ROWS[:50])
            return {"c": ROWS[:50]}

        return InputCase(lambda: Shelf(folder, bounded=request.param), rows, add_split=add)


def run(folder: Path, until: str | None = None, **fields: Any) -> list[int]:
    job = hr.Job("own")
    job.read(Shelf(str(folder / "in"), **fields)).write("collect:", name="out")
    drive(job, folder / "job", until=until)
    return sorted(hr.collected(str(folder / "job"), "out")["n"].to_pylist())


def test_a_job_can_run_to_where_the_input_ends_now(tmp_path):
    put(tmp_path / "in", "a", ROWS[:5])
    assert run(tmp_path, until="end") == list(range(5))


def test_a_job_goes_on_where_it_was_also_in_new_splits(tmp_path):
    put(tmp_path / "in", "a", ROWS[:5])
    assert run(tmp_path) == list(range(5))

    put(tmp_path / "in", "a", ROWS[5:7])
    put(tmp_path / "in", "b", ROWS[7:9])
    assert run(tmp_path) == list(range(9))


def test_an_input_that_became_shorter_or_lost_a_split_is_refused(tmp_path):
    put(tmp_path / "in", "a", ROWS[:5])
    run(tmp_path)
    (tmp_path / "in" / "a.json").unlink()
    put(tmp_path / "in", "a", ROWS[:3])
    with pytest.raises(hr.InputError) as caught:
        run(tmp_path)
    assert caught.value.code == "HR-INPUT-007"

    (tmp_path / "in" / "a.json").unlink()
    with pytest.raises(hr.InputError) as caught:
        run(tmp_path)
    assert caught.value.code == "HR-INPUT-007"


def test_a_fetch_with_too_few_rows_stops_the_job(tmp_path):
    put(tmp_path / "in", "a", ROWS[:5])
    with pytest.raises(hr.HeadraceError, match=r"returned . rows, not .") as caught:
        run(tmp_path, short=1)
    assert "HR-INPUT-061" in str(caught.value)


def test_what_the_class_raises_names_the_method(tmp_path):
    put(tmp_path / "in", "a", ROWS[:5])
    source = Shelf(str(tmp_path / "in"), short="x")  # type: ignore[arg-type]
    why = "fetch of the input 'test-shelf' failed: TypeError"
    with pytest.raises(hr.InputError, match=why) as caught:
        list(source.read(source.cut("a", 0, 5, 1)[0]))
    assert caught.value.code == "HR-INPUT-062"


class NoKind(hr.Input):
    schema = "n bigint"


class NoSchema(hr.Input):
    kind = "test-no-schema"


class NoLatest(NoSchema):
    schema = "n bigint"


class NoFetch(NoLatest):
    def latest(self, split: str) -> int:
        return 0


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (NoKind(), "NoKind declares no kind"),
        (NoSchema(), "NoSchema declares no schema"),
        (NoLatest(), "NoLatest has no latest"),
        (NoFetch(), "NoFetch has no fetch"),
    ],
)
def test_an_incomplete_class_is_refused_where_it_is_read(source, why):
    job = hr.Job("own")
    job.read(source, schema="n bigint").write("collect:")

    with pytest.raises(hr.HeadraceError, match=why) as caught:
        job.check()
    assert "HR-INPUT-060" in str(caught.value)
