"""Folders that releases have left: today's code goes on from them, and leaves the same.

If one of these fails, a job that is in use would be refused, or go wrong, after an upgrade: mend
the code, not the folder. A name that is at rest (a step's kind, a table, a key of the manifest)
stays what it is, whatever the class is called.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.doctor.examine import examine_job
from tests.golden.programs import PROGRAMS, Program
from tests.golden.programs.base import readings
from tests.golden.reading import Play, description, unpack
from tests.golden.write import FOLDERS

LEFT = sorted(FOLDERS.glob("*/*.zip"))
RELEASE = "0.1.0"

every_folder = pytest.mark.parametrize(
    "left", LEFT, ids=lambda path: f"{path.parent.name}-{path.stem}"
)


@every_folder
def test_a_job_goes_on_from_a_folder_that_was_left(left, home):
    play, known = unpacked(left, home / "here")
    before = play.manifest()
    stored = {n for n, facts in before["ops"].items() if not facts["shape"].get("stateless")}
    places = [("input", n) for n in before["reads"]] + [("output", n) for n in before["writes"]]
    left_out = play.left_out()

    verdicts = play.verdicts()

    expected = dict.fromkeys([*(("operator", n) for n in stored), *places], "same")
    assert verdicts == {
        (role, n): "dropped" if n in left_out else v for (role, n), v in expected.items()
    }
    if same_python(known) and not left_out:
        assert play.manifest() == before  # nothing was migrated, or adopted

    play.second_half()
    assert play.outputs() == without(known["outputs"], left_out)


@every_folder
def test_the_same_program_leaves_the_same_folder_today(left, home):
    golden, known = unpacked(left, home / "golden")
    fresh = Play(golden.program, home / "fresh")
    fresh.first_half()

    left_out = golden.left_out()
    here, there = (comparable(description(play), known) for play in (fresh, golden))
    assert here.keys() == there.keys()
    for part in here:
        assert here[part] == without(there[part], left_out), part

    fresh.second_half()
    assert fresh.outputs() == without(known["outputs"], left_out)


def test_a_board_that_stored_only_the_best_is_refused_by_name(home):
    golden, _ = unpacked(FOLDERS.parent / "older" / "thinned.zip", home)
    assert golden.left_out() == ["board", "board out"]

    def with_board(root: Path) -> hr.Job:
        job = hr.Job("thinned")
        rows = readings(root, job).select("id", "area", "zone", "state", "celsius", "at")
        rows.top(3, by="celsius", largest=False, each="area", name="board").write("collect:")
        return job

    golden.program = Program("with a board", with_board, golden.program.inputs)
    with pytest.raises(hr.StateError, match="it stored only the best rows, of which") as refused:
        golden.verdicts()
    assert refused.value.code == "HR-EVOLVE-001"


def test_every_program_has_left_a_folder():
    assert {path.stem for path in LEFT} == {*PROGRAMS}


def test_a_kind_that_is_called_otherwise_shows(home):
    golden, _ = unpacked(FOLDERS / RELEASE / "aggregates.zip", home)
    before = description(golden)["ops"]

    assert golden.change_manifest('"WindowAgg"', '"Renamed"')

    changed = description(golden)["ops"]
    assert changed.keys() == before.keys() and changed != before


def test_a_step_that_is_another_now_is_refused(home):
    golden, _ = unpacked(FOLDERS / RELEASE / "aggregates.zip", home)
    fingerprint = golden.manifest()["ops"]["tumbling"]["fingerprint"]
    golden.change_manifest(fingerprint, "0" * len(fingerprint))
    golden.change_manifest('"WindowAgg"', '"Renamed"')

    with pytest.raises(hr.StateError, match="cannot go on from its state") as refused:
        golden.verdicts()
    assert refused.value.code == "HR-EVOLVE-001"


def test_a_value_of_a_window_function_that_is_of_another_kind_is_refused(home):
    golden, _ = unpacked(FOLDERS / RELEASE / "window_functions.zip", home)
    fingerprint = golden.manifest()["ops"]["trend"]["fingerprint"]
    golden.change_manifest(fingerprint, "0" * len(fingerprint))
    assert golden.change_manifest('"WindowValue"', '"Renamed"')

    with pytest.raises(hr.StateError, match="'trend' cannot go on from its state"):
        golden.verdicts()


def test_a_program_without_a_step_is_refused(home):
    golden, _ = unpacked(FOLDERS / RELEASE / "letters.zip", home)
    golden.program = Program("letters", other, golden.program.inputs)

    with pytest.raises(hr.StateError):
        golden.verdicts()


def test_outputs_without_the_second_half_are_others(home):
    golden, known = unpacked(FOLDERS / RELEASE / "running.zip", home)
    golden.end()
    assert golden.outputs() != known["outputs"]


def other(root: Path) -> hr.Job:
    job = hr.Job("letters")
    rows = job.read("log:raw", log=str(root / "log"), schema="id bigint", name="renamed")
    rows.write("collect:", name="prices out")
    return job


def unpacked(left: Path, root: Path) -> tuple[Play, dict[str, Any]]:
    known = unpack(left, root)
    return Play(PROGRAMS[left.stem], root), known


def without(facts: Any, left_out: list[str]) -> Any:
    """What is described or told, without the steps and outputs that were left out."""
    names = [*left_out, *(name.replace(" ", "%0") for name in left_out)]  # in paths

    def stays(text: object) -> bool:
        return not any(re.search(rf"(^|/){re.escape(n)}($|/)", str(text)) for n in names)

    if isinstance(facts, dict):
        return {key: value for key, value in facts.items() if stays(key)}
    return [one for one in facts if stays(one)] if isinstance(facts, list) else facts


def same_python(known: dict[str, Any]) -> bool:
    return bool(known["made"]["python"] == list(sys.version_info[:2]))


def comparable(described: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """Without digests of functions, which another Python compiles to other code."""
    if same_python(known):
        return described
    for facts in described["ops"].values():
        facts["fingerprint"] = ""
        origin = facts["shape"].get("from", {})
        origin.pop("functions", None)
        origin["sides"] = [side[:2] for side in origin.get("sides", [])]
    return described


@every_folder
def test_doctor_finds_nothing(left, home):
    golden, _ = unpacked(left, home)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}

    assert examine_job(golden.folder).findings == ()
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == before
