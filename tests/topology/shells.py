"""Topologies with bolts in other languages, that the tests share."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from tests.topology.bolts import Count

PROGRAMS = Path(__file__).parent / "programs"
SPLIT = """
if "die" in values[0].split(): die(5)
for word in values[0].split():
    emit(word)
if not values[0].split():
    emit(values[0], stream="empty")
fail() if "bad" in values[0].split() else ack()
"""
COMMANDS: dict[str, list[str]] = {
    "python": [sys.executable, str(PROGRAMS / "child.py"), SPLIT],
    "node": ["node", str(PROGRAMS / "split.js")],
    "bash": ["bash", str(PROGRAMS / "split.sh")],
}


def needs(language: str) -> list[str]:
    """The command of a splitter; skips the test where the language is not installed."""
    command = COMMANDS[language]
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return command


def python(code: str, output: Any = "v bigint", **options: Any) -> hr.ShellBolt:
    """A bolt in Python; see `programs/child.py` for what its code may do."""
    command = [sys.executable, str(PROGRAMS / "child.py"), code]
    return hr.ShellBolt(command, output, **{"timeout": "20s", **options})


def split_count(command: list[str], tasks: int = 2, **options: Any) -> hr.Topology:
    """Word count with a splitter in another language."""
    topology = hr.Topology("words", slots=4)
    topology.spout("lines", "log:lines", schema="line string")
    split = hr.ShellBolt(command, "word string", {"empty": "line string"}, **options)
    topology.bolt("split", split, tasks=tasks).shuffle("lines")
    topology.bolt("count", Count(), tasks=3).fields("split", "word")
    topology.bolt("out", "collect:").shuffle("count")
    topology.bolt("none", "collect:").global_("split", "empty")
    return topology


def numbers(bolt: Any, tasks: int = 1, schema: str = "v bigint", **options: Any) -> hr.Topology:
    """Numbers through one bolt."""
    topology = hr.Topology("numbers")
    topology.spout("numbers", "log:numbers", schema=schema)
    topology.bolt("bolt", bolt, tasks=tasks, **options).shuffle("numbers")
    topology.bolt("out", "collect:").shuffle("bolt")
    return topology
