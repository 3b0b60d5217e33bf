"""From a file of the user's to the job in it.

The file is run as a module of its own name, so that its classes and functions have a place;
nothing else is changed, except that it can import its neighbours, as a script can. They come
behind Python's own modules, so that a job may be called `copy.py`.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from types import ModuleType

from headrace import import_path
from headrace.api.job import Job
from headrace.errors import HeadraceError, RunError, Site


def load_job(file: Path, name: str | None = None, *, to_run: bool = False) -> Job:
    """The job that `file` makes; `name` chooses among several.

    Unless it is to run, what the file prints goes to standard error: the output is our answer.
    """
    with nullcontext() if to_run else redirect_stdout(sys.stderr):
        module = _load(file)
    all_jobs = {id(v): v for v in vars(module).values() if isinstance(v, Job)}
    jobs = [j for j in all_jobs.values() if name is None or j.name == name]
    if len(jobs) == 1:
        return jobs[0]
    names = ", ".join(repr(j.name) for j in all_jobs.values())
    if not all_jobs:
        raise RunError(
            "HR-CLI-002",
            f"{str(file)!r} makes no job",
            'Make one at the top level of the file: job = hr.Job("name").',
        )
    raise RunError(
        "HR-CLI-003",
        f"{str(file)!r} has no job {name!r}, only {names}"
        if name and not jobs
        else f"{str(file)!r} makes {len(all_jobs)} jobs: {names}",
        "Say which one with --job NAME; their names must differ.",
    )


def _load(file: Path) -> ModuleType:
    path = file.resolve()
    if not path.is_file() or path.suffix != ".py":
        raise RunError(
            "HR-CLI-001",
            f"{str(file)!r} is not a Python file"
            if path.exists()
            else f"there is no file {str(file)!r}",
            "Give the path of a .py file that makes a job.",
        )
    _refuse_hiding(path.parent)
    import_path.extend([str(path.parent)])
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # it is a .py file
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except HeadraceError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(path, error) from error
    return module


# What we import, and what that imports: a file of such a name would be taken for it.
_NEEDED = (
    "headrace", "pyspark", "py4j", "pyarrow", "duckdb", "sqlglot", "numpy", "pandas", "typer",
    "click", "rich", "cloudpickle", "confluent_kafka", "starlette", "uvicorn", "dateutil", "pytz",
    "six", "pygments", "markdown_it", "mdurl", "shellingham", "typing_extensions",
)  # fmt: skip


def _refuse_hiding(folder: Path) -> None:
    """Refuse a folder with modules that would take the place of what a job needs."""
    for name in _NEEDED:
        for file in (folder / f"{name}.py", folder / name / "__init__.py"):
            origin = _origin(name) if file.is_file() else None
            if origin is not None and not file.samefile(origin):
                raise _hides(file.relative_to(folder), f"the package {name!r}")
    for file in folder.glob("*.py"):  # of other systems: here they must not be found
        if file.stem in sys.stdlib_module_names and importlib.util.find_spec(file.stem) is None:
            raise _hides(file.relative_to(folder), f"Python's module {file.stem!r}")


def _origin(name: str) -> str | None:
    spec = importlib.util.find_spec(name)
    return spec.origin if spec is not None else None


def _hides(file: Path, what: str) -> RunError:
    return RunError(
        "HR-CLI-006",
        f"{file.as_posix()!r} beside the job would be imported in place of {what}",
        "Rename it.",
    )


def _module_name(path: Path) -> str:
    """The file's own name, unless a module of that name is in use: `json.py` is a fine job."""
    name = re.sub(r"\W", "_", path.stem)
    loaded = sys.modules.get(name)
    own = loaded is None or getattr(loaded, "__file__", None) == str(path)
    return name if own and name not in sys.stdlib_module_names else f"job_{name}"


def _failed(path: Path, error: BaseException) -> RunError:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    line = frames[-1].lineno if frames else None
    if isinstance(error, SyntaxError) and error.filename == str(path):  # it never ran
        line = error.lineno
    return RunError(
        "HR-CLI-004",
        f"{path.name} raised {type(error).__name__}: {error}",
        _hidden(path.parent, error)
        or "The file is run to find the job in it: correct it, then try again.",
        site=Site(str(path), line or 1),
    )


def _hidden(folder: Path, error: BaseException) -> str | None:
    """What to do if the job looked for its neighbour and found Python's own module."""
    name = error.name if isinstance(error, ImportError) else None
    if isinstance(error, AttributeError) and isinstance(error.obj, ModuleType):
        name = error.obj.__name__
    if name in sys.stdlib_module_names and (folder / f"{name}.py").is_file():
        return f"Python's own module {name!r} comes before {name}.py beside the job: rename that."
    return None
