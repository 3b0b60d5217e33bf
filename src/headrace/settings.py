"""Settings: what holds for a run besides the program, as one frozen value.

A setting comes from the first of these that gives it: the call, the environment
(`HEADRACE_SLOTS`), `headrace.toml` in the working folder, the default. Every value is checked
whatever its way in, and folders become absolute, so that tasks may run anywhere. This module
reads the environment and that one file; it creates nothing.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from headrace.clock import millis
from headrace.errors import PlanError, RunError, did_you_mean

_OTHERS = frozenset(("server_url", "server_token"))  # variables of who talks to a server
FILE = "headrace.toml"
PREFIX = "HEADRACE_"


def _path(value: object, kind: str = "folder") -> str:
    if not isinstance(value, str | os.PathLike) or not os.fspath(value):
        raise ValueError(f"the path of a {kind}")
    return os.path.abspath(os.path.expanduser(os.fspath(value)))


def _file(value: object) -> str:
    return _path(value, "file")


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("a text that is not empty")
    return value.strip()


_MASTER = re.compile(
    r"local(\[(\d+|\*)(\s*,\s*\d+)?\])?|local-cluster\[\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\]"
    r"|spark://[^\s,:/]+:\d+(,[^\s,:/]+:\d+)*|spark://\[[0-9a-fA-F:.]+\]:\d+|yarn|k8s://\S+"
)
_MASTERS = (
    '"local", "local[4]", "local[*]", "spark://host:7077", "yarn" or "k8s://https://host:443"'
)


def _master(value: object) -> str:
    text = _text(value)
    if not _MASTER.fullmatch(text):  # Spark's own words
        raise ValueError(_MASTERS)
    return text


def _count(value: object) -> int:
    try:
        number = int(value) if isinstance(value, str) else value
    except ValueError:
        number = None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise ValueError("a whole number above 0")
    return number


def _duration(value: object) -> int:
    try:
        duration = millis(value)  # type: ignore[arg-type]
    except PlanError:
        duration = 0
    if duration < 1:
        raise ValueError('a duration of 1 ms or more, such as "500ms" or "2s"')
    return duration


Check = Callable[[object], object]


def _setting(check: Check, default: object, read: Check | None = None) -> Any:
    """A field; `read` converts what a user writes, if that is not the value itself."""
    return field(default=default, metadata={"check": check, "read": read or check})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where a run keeps its things, and how hard it works."""

    log: str = _setting(_path, ".headrace/log")  # the embedded log's topics
    jobs: str = _setting(_path, ".headrace/jobs")  # one folder per job: state, manifests
    server: str = _setting(_path, ".headrace/server")  # the folder of the server of jobs
    master: str = _setting(_master, "local[*]")
    target_batch: int = _setting(_count, 1_000, read=_duration)  # ms that a batch should take
    max_batch: int | None = _setting(_count, None)  # rows; none: only the target time decides
    slots: int | None = _setting(_count, None)  # shares of the key space, fixed at a job's birth
    parallelism: int | None = _setting(_count, None)  # tasks per level; none: as many as cores
    keep_epochs: int = _setting(_count, 20)  # manifests kept to go back to
    secret_file: str | None = _setting(_file, None)  # holds a standalone cluster's secret
    stall_after: int = _setting(_count, 60_000, read=_duration)  # ms without progress

    def __post_init__(self) -> None:
        for setting in fields(self):
            value = getattr(self, setting.name)
            if value is not None or setting.default is not None:
                checked = _checked(setting.metadata["check"], value, setting.name)
                object.__setattr__(self, setting.name, checked)

    @classmethod
    def load(cls, **overrides: object) -> Settings:
        """The settings in force here and now; an override of None is ignored."""
        explicit = {name: value for name, value in overrides.items() if value is not None}
        checked = {name: _read(name, value, name, "the call") for name, value in explicit.items()}
        values = _from_file(Path(FILE)) | _from_environment(os.environ) | checked
        return cls(**values)  # type: ignore[arg-type]


_READ: dict[str, Check] = {setting.name: setting.metadata["read"] for setting in fields(Settings)}


def _from_file(path: Path) -> dict[str, object]:
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:  # a wrong byte and wrong TOML are both ValueErrors
        raise RunError(
            "HR-SETTINGS-003",
            f"cannot read the settings in {FILE}: {error}",
            'Write lines such as `parallelism = 4` or `target_batch = "2s"`.',
        ) from error
    return {n: _read(n, v, f"{n} in {FILE}", FILE) for n, v in values.items()}


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    values: dict[str, object] = {}
    for variable in sorted(v for v in environ if v.startswith(PREFIX) and environ[v]):
        name = variable.removeprefix(PREFIX).lower()
        # Others may have variables of their own; a misspelt name is refused.
        if name in _READ or (name not in _OTHERS and get_close_matches(name, _READ, cutoff=0.75)):
            values[name] = _read(name, environ[variable], variable, f"the environment, {variable}")
    return values


def _read(name: str, value: object, label: str, origin: str) -> object:
    if name in _READ:
        return _checked(_READ[name], value, label)
    raise RunError(
        "HR-SETTINGS-001",
        f"there is no setting {name!r} (from {origin})",
        f"{did_you_mean(name, _READ)}The settings are {', '.join(_READ)}.",
    )


def _checked(check: Check, value: object, label: str) -> object:
    try:
        return check(value)
    except ValueError as error:
        raise RunError(
            "HR-SETTINGS-002", f"the setting {label} is {value!r}", f"Give {error}."
        ) from None
