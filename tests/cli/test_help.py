"""Help on a terminal of 80 columns: every command, in whole lines, with an example."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from headrace.cli.app import app

WIDTH = 80


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(group, "commands", {}).items():
        yield from commands(inner, *path, name)


EVERY = list(commands(typer.main.get_command(app)))
GROUPS = [path for path in EVERY if path in {other[:-1] for other in EVERY if other}]
every_command = pytest.mark.parametrize("path", EVERY, ids=" ".join)


def help_of(path: tuple[str, ...]) -> list[str]:
    result = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(WIDTH)})
    assert result.exit_code == 0, result.output
    return [line.rstrip() for line in result.stdout.splitlines()]


def prose(path: tuple[str, ...]) -> list[list[str]]:
    """The paragraphs outside the boxes."""
    found: list[list[str]] = [[]]
    for line in help_of(path):
        if line.startswith(("╭", "│", "╰")) or not line:
            found.append([])
        else:
            found[-1].append(line.strip())
    return [lines for lines in found if lines and not lines[0].startswith("Usage:")]


@every_command
def test_no_line_is_longer_than_the_terminal(path):
    assert max(map(len, help_of(path))) <= WIDTH


@every_command
def test_a_line_is_broken_where_the_next_word_does_not_fit(path):
    for lines in prose(path):
        if not lines[0].startswith(("headrace ", "echo ")):  # examples, a line each
            for line, following in pairwise(lines):
                assert len(line) + 1 + len(following.split()[0]) > WIDTH - 2, (line, following)


@every_command
def test_it_teaches_with_an_example_that_fits_in_one_line(path):
    lines = help_of(path)
    examples = [n for n, line in enumerate(lines) if "Example:" in line or line == " Try:"]
    assert examples
    for n in examples:
        assert lines[n] == " Try:" or lines[n + 1] == "", lines[n : n + 2]


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_a_list_has_a_line_for_each_command(path):
    lines = help_of(path)
    for name in (other[-1] for other in EVERY if other and other[:-1] == path):
        (at,) = [n for n, line in enumerate(lines) if line.startswith(f"│ {name} ")]
        assert not lines[at + 1].startswith("│  "), lines[at : at + 2]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("groups", "topic groups"), ("lag", "topic lag"), ("ls", "dead ls")],
)
def test_a_command_of_a_group_is_found_without_its_group(typed, meant):
    result = CliRunner().invoke(app, [typed, "x"])
    assert result.exit_code == 2 and f"Did you mean '{meant}'?" in result.output
