"""What is written elsewhere (the CI workflow, pre-commit, .ci/run, CONTRIBUTING.md) is about verbs,
files and names that there are."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

from tests.test_import_rule import JOB, ROOMS

ROOT = Path(__file__).resolve().parents[1]
VERBS = set(re.findall(r"^([a-z]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))

CODE = ("src", "tests", "evolution")
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
QUOTED = re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", PAGE, flags=re.M | re.S))


def commands(node: Any) -> list[str]:
    """Every `run` of a workflow."""
    if isinstance(node, list):
        return [c for one in node for c in commands(one)]
    if not isinstance(node, dict):
        return []
    own = [node["run"]] if "run" in node else []
    return [*own, *(c for one in node.values() for c in commands(one))]


def test_the_workflow_calls_verbs_and_nothing_else() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())
    long = workflow["jobs"]["long"]["strategy"]["matrix"]["verb"]
    found = [c for c in commands(workflow["jobs"]) if c != "make ${{ matrix.verb }}"]
    assert found == ["make test"]
    assert set(long) < VERBS and "test" not in long


def test_pre_commit_calls_a_verb() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    entries = [hook["entry"] for repo in config["repos"] for hook in repo["hooks"]]
    assert entries == ["make check"]


def test_ci_runs_the_command_of_the_readme() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    assert "make test" in script and "make test" in (ROOT / "README.md").read_text()


def test_contributors_are_sent_to_verbs_that_there_are() -> None:
    named = {*re.findall(r"(?:^|`)make ([a-z]+)", PAGE, re.M)}
    assert named and named <= VERBS


def test_contributors_are_sent_to_files_that_there_are() -> None:
    places = (ROOT, ROOT / "src", ROOT / "src" / "headrace")
    named = [q for q in QUOTED if re.fullmatch(r"[\w./*-]*(/|\.(py|md|yaml))[\w./]*", q)]
    gone = [n for n in named if not any([*p.glob(n)] for p in places)]
    assert named and gone == [], "CONTRIBUTING.md: name these as they are called now"


def test_contributors_are_told_names_that_there_are() -> None:
    """Classes, constants, functions and methods; `Spec.shape()` is looked for as `shape`."""
    code = "\n".join(f.read_text(encoding="utf-8") for d in CODE for f in (ROOT / d).rglob("*.py"))
    named = [
        re.split(r"[(\[]", q)[0].rpartition(".")[2]
        for q in QUOTED
        if re.match(r"_?[A-Z]\w+(\.(?!md$)\w+)?$|[\w.]+\(", q)
    ]
    known = {*re.findall(r"(?:class|def) (\w+)|^ *(\w+)(?::[^\n=]+)? =", code, re.M)}
    assert named and {*named} - {name for pair in known for name in pair} == set()


def test_contributors_see_the_rooms_as_they_are() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\|([^|]*)\|$", PAGE, re.M)
    shown = {room: [*re.findall(r"[\w.]+", may)] for room, may in rows}
    assert shown == {
        room: ["JOB", *may[len(JOB) :]] if may[: len(JOB)] == JOB else [*may]
        for room, may in ROOMS.items()
    }


def test_every_extra_of_the_package_is_on_the_page_about_installing() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs/guide/installing.md").read_text(encoding="utf-8")
    programs_need = {*project["optional-dependencies"]} - {"dev", "plot", "server"}
    assert [name for name in sorted(programs_need) if f"headrace[{name}]" not in page] == []
