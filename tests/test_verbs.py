"""What runs elsewhere (the CI workflow, pre-commit, .ci/run) only calls verbs that there are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
VERBS = set(re.findall(r"^([a-z]+):.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE))


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
