"""The pictures of the guide can be drawn anew: by scripts that run Headrace over small data."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SCRIPTS = sorted(PICTURES.glob("*.py"))
BEGINS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml"}
SHOT = "page-"  # taken of the server's page: tests/page/test_pictures.py


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    for script in SCRIPTS:
        runpy.run_path(str(script))["main"](folder)
    return folder


def test_every_picture_of_the_guide_comes_from_a_script(drawn: Path) -> None:
    kept = {path.name for path in PICTURES.iterdir() if path.suffix in BEGINS}
    kept = {name for name in kept if not name.startswith(SHOT) or name == "page-views.png"}
    assert kept == {path.name for path in drawn.iterdir()} and len(kept) >= 12
    assert all(path.read_bytes().startswith(BEGINS[path.suffix]) for path in drawn.iterdir())


def test_every_example_has_a_picture_that_a_page_shows() -> None:
    root = PICTURES.parents[1]
    generators = {"lines", "posts"}
    examples = {path.stem for path in (root / "examples").glob("*.py")} - generators
    pages = [root / "README.md", *(root / "docs" / "guide").glob("*.md")]
    shown = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [n for n in sorted(examples) if f"pictures/{n.replace('_', '-')}.png" not in shown] == []


def test_speeds_are_the_newest_of_the_history() -> None:
    made = runpy.run_path(str(PICTURES / "speed.py"))
    history = PICTURES.parents[1] / "bench" / "history.jsonl"
    runs = [json.loads(line) for line in history.read_text(encoding="utf-8").splitlines()]
    found = made["newest"]()
    for job in {job for row in made["JOBS"].values() for job in row if job}:
        last = next(run for run in reversed(runs) if job in run["rows"] and not run["quick"])
        assert found[job][:2] == (last["rows"][job][0], last["at"][:10])


def test_the_scripts_draw_what_headrace_gives() -> None:
    made = runpy.run_path(str(PICTURES / "windows.py"))
    (tumbling, *_), windows_of = made["PICTURES"]["tumbling"], made["windows_of"]
    expected = {}
    for number, row in enumerate(tumbling.rows, 1):
        expected.setdefault(row.at // 10 * 10, []).append(number)
    assert {bar.start: bar.rows for bar in windows_of(tumbling)} == expected
