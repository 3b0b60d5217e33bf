"""Docstrings as reStructuredText: they are written as in Markdown, with `code` in backticks."""

from __future__ import annotations

import re

CODE = re.compile(r"`([^`]+)`(\w?)")
ARGUMENT = re.compile(r"[a-z_]+: ")
MARKS = re.compile(r"[*|\\]|(?<=\w)_(?!\w)")


def restructured(text: str) -> list[str]:
    """The lines of a docstring; indented ones after an empty line are a program."""
    made: list[str] = []
    indented = False
    for line in "\n\n".join(map(_listed, _prose(text).split("\n\n"))).splitlines():
        if line.startswith("    ") and not indented and (not made or not made[-1]):
            made += [".. code-block:: python", ""]
        if line:
            indented = line.startswith("    ")
        made.append(_plain(line) if indented else line)
    return made


def _listed(paragraph: str) -> str:
    """A paragraph of `argument: what it is about`, each on a line of its own, as a list."""
    lines = paragraph.splitlines()
    if sum(map(bool, map(ARGUMENT.match, lines))) < 2 or not ARGUMENT.match(lines[0]):
        return paragraph
    named = (re.sub(r"^([a-z_]+): ", r"- ``\1``: ", line) for line in lines)
    return "\n".join(line if line.startswith("- ") else f"  {line}" for line in named)


def _prose(text: str) -> str:
    """Code in double backticks, and no marks outside of it; it may go over lines."""
    parts, end = [], 0
    for found in CODE.finditer(text):
        code = " ".join(found[1].split()) if "\n" in found[1] else found[1]
        rest = rf"\ {found[2]}" if found[2] else ""
        parts += [_escaped(text[end : found.start()]), f"``{code}``{rest}"]
        end = found.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return MARKS.sub(r"\\\g<0>", text)


def _plain(line: str) -> str:
    return re.sub(r"\\(.)", r"\1", line).replace("``", "`")
