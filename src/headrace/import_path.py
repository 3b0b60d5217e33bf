"""Where a job's own modules are found: after Python's standard library, before what is installed.

A script's folder comes first on Python's path, so a job called `copy.py` would take the place of
the module `copy` for everybody. Here, and in every process that works for a job, the folders of
the user come behind the standard library: a job may be called what it likes.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

VARIABLE = "HEADRACE_PATH"  # in the environment of workers
_INSTALLED = ("site-packages", "dist-packages")
_STANDARD = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
_PACKAGE = str(Path(__file__).parent.parent)


def users() -> list[str]:
    """The folders on this process's path that are neither Python's nor installed."""
    folders = [p for p in sys.path if p and not _is_installed(p) and os.path.isdir(p)]
    return [p for p in dict.fromkeys(folders) if not p.startswith(_STANDARD)]


def extend(folders: Iterable[str]) -> None:
    """Let modules be found in `folders` too, behind the standard library."""
    fresh = [folder for folder in folders if folder not in sys.path]
    at = next((i for i, p in enumerate(sys.path) if _is_installed(p)), len(sys.path))
    sys.path[at:at] = fresh


def share() -> None:
    """Let the workers of this process import what it can."""
    os.environ[VARIABLE] = os.pathsep.join(users())
    if not _is_installed(_PACKAGE):  # a Headrace that runs from its sources
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([*paths, _PACKAGE])).strip(":")


def from_environment() -> list[str]:
    return [p for p in os.environ.get(VARIABLE, "").split(os.pathsep) if p]


def _is_installed(path: str) -> bool:
    return any(name in path for name in _INSTALLED)
