"""From a file of the user's to the job in it."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from headrace.api.job import Job
from headrace.errors import HeadraceError, RunError, Site


def load_job(file: Path, name: str | None = None) -> Job:
    """The job that `file` makes; `name` chooses among several."""
    module = _load(file)
    found = {id(v): v for v in vars(module).values() if isinstance(v, Job)}
    jobs = [j for j in found.values() if name is None or j.name == name]
    if len(jobs) == 1:
        return jobs[0]
    names = ", ".join(repr(j.name) for j in found.values())
    if not found:
        raise RunError(
            f"{str(file)!r} makes no job", code="HR-CLI-002",
            hint='Make one at the top level of the file: job = hr.Job("name").',
        )  # fmt: skip
    raise RunError(
        f"{str(file)!r} makes {len(found)} jobs: {names}" if name is None
        else f"{str(file)!r} has no job {name!r}, only {names}",
        code="HR-CLI-003", hint="Say which one with --job NAME.",
    )  # fmt: skip


def _load(file: Path) -> ModuleType:
    if not file.is_file():
        raise RunError(
            f"there is no file {str(file)!r}", code="HR-CLI-001",
            hint="Give the path of a Python file that makes a job.",
        )  # fmt: skip
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem.replace("-", "_"), file)
    if spec is None or spec.loader is None:
        raise RunError(
            f"{str(file)!r} is not a Python file", code="HR-CLI-001", hint="Give a .py file."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError:
        raise
    except Exception as error:
        raise _failed(file, error) from error
    return module


def _failed(file: Path, error: Exception) -> RunError:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(file)]
    line = getattr(error, "lineno", None) or (frames[-1].lineno if frames else 1) or 1
    return RunError(
        f"{file.name} raised {type(error).__name__}: {error}", code="HR-CLI-004",
        hint="Mend the file; it is run to find the job in it.", site=Site(str(file), line),
    )  # fmt: skip
