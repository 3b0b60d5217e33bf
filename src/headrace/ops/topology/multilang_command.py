"""A program in another language as it is declared: its command, and fields it cannot get."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.clock import Duration, millis
from headrace.errors import PlanError

_NAMES = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
          "LD_LIBRARY_PATH", "SYSTEMROOT")  # fmt: skip


@dataclass(frozen=True)
class Command:
    """What to run; `timeout` in ms is for how long a child may be silent."""

    arguments: tuple[str, ...]
    cwd: str
    env: tuple[tuple[str, str], ...]
    timeout: int
    max_restarts: int

    def __str__(self) -> str:
        return " ".join(self.arguments)

    def environment(self) -> dict[str, str]:
        """Only what a program needs to run, and what the user passes on: no secrets of ours."""
        own = {n: v for n, v in os.environ.items() if n in _NAMES or n.startswith("LC_")}
        return {**own, **dict(self.env)}


def command_of(command: Any, env: Any, cwd: Any, timeout: Duration, max_restarts: Any) -> Command:
    """What to run, checked."""
    if isinstance(command, str | bytes):
        words = command.decode("utf-8", "replace") if isinstance(command, bytes) else command
        raise PlanError(
            "HR-TOPOLOGY-040",
            f"the command {command!r} is a text, which no shell reads here",
            f"Write its arguments as a list: {words.split()!r}.",
        )
    arguments = tuple(map(os.fspath, command)) if _is_list(command) else ()
    texts = all(isinstance(argument, str) and "\0" not in argument for argument in arguments)
    if not (texts and arguments and arguments[0]):
        raise PlanError(
            "HR-TOPOLOGY-040",
            f"the command {command!r} is no list of arguments",
            'Write the program and its arguments: ["node", "split.js"].',
        )
    variables = tuple((env or {}).items())
    if not all(isinstance(text, str) for pair in variables for text in pair):
        raise PlanError(
            "HR-TOPOLOGY-040",
            f"env of {arguments[0]!r} has a name or a value that is no text: {_wrong(variables)!r}",
            'Names and values are texts: env={"LEVEL": "3"}.',
        )
    length = millis(timeout)
    if length < 1 or type(max_restarts) is not int or max_restarts < 0:
        raise PlanError(
            "HR-TOPOLOGY-040",
            f"{arguments[0]!r} has timeout {timeout!r} and max_restarts {max_restarts!r}",
            'Give a length of time and a whole number: timeout="30s", max_restarts=3.',
        )
    place = os.path.abspath(os.fspath(cwd) if cwd is not None else os.getcwd())
    return Command(arguments, place, variables, length, max_restarts)


def _wrong(variables: Sequence[tuple[Any, Any]]) -> Any:
    """The name of the first that is no text; never its value, which may be a secret."""
    return next(n for n, v in variables if not isinstance(n, str) or not isinstance(v, str))


def _is_list(command: Any) -> bool:
    return isinstance(command, list | tuple) and all(
        isinstance(argument, str | os.PathLike) for argument in command
    )


def unsent(who: str, field: pa.Field) -> PlanError:
    return PlanError(
        "HR-TOPOLOGY-045",
        f"{who} is a process, and its field {field.name!r} ({field.type}) has no form as JSON",
        "Turn it into text, a number or a timestamp before; see docs/guide/topologies.md, Bolts "
        "in other languages.",
    )
