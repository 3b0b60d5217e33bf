"""What a program imports from beside it, found by reading it; nothing is run.

Imports that a program computes (`importlib.import_module(name)`) are not found: such a program is
submitted as a folder.
"""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from headrace.errors import ServerError

MAIN = ("__main__.py", "job.py")  # of a program that is a folder
MOST_FILES = 2_000
MOST_BYTES = 64 << 20
_MOST_NAMES = 20_000  # of files and folders that are looked at
MOST_READ = (
    1 << 20
)  # bytes of a module whose imports are looked for: its syntax takes 500 times that


def files_of(program: Path) -> tuple[dict[str, Path], str]:
    """The files of a program, by their path in its snapshot; and which of them makes the job."""
    if program.is_dir():
        main = next((name for name in MAIN if (program / name).is_file()), None)
        if main is None:
            raise ServerError(
                "HR-SERVER-015",
                f"the folder {str(program)!r} is not a program",
                f"It needs a file {' or '.join(MAIN)} that makes the job.",
            )
    else:
        main = program.name
    try:
        found = dict(_whole(program, program)) if program.is_dir() else _beside(program)
    except TooMany as many:
        raise _too_large(many.folder, "more files than can be") from None
    size = sum(path.stat().st_size for path in found.values())
    if len(found) > MOST_FILES or size > MOST_BYTES:
        raise _too_large(program, f"{len(found):,} files with {size:,} bytes")
    return found, main


def _beside(program: Path) -> dict[str, Path]:
    """A file, and the modules and packages of its folder that it imports, and those import."""
    root, found, rest = program.parent, {program.name: program}, [program]
    while rest:
        for name in sorted(_names(rest.pop())):
            new = dict(_module(root, name))
            fresh = [path for at, path in new.items() if at not in found]
            found |= new
            rest += [path for path in fresh if path.suffix == ".py"]
    return found


def _module(root: Path, name: str) -> Iterator[tuple[str, Path]]:
    """The files of a module of this name in a folder, if there is one: a package is whole."""
    if name in sys.stdlib_module_names:  # Python's own come first
        return
    folder = root / name
    try:
        files = list(_whole(folder, root)) if folder.is_dir() else []
    except TooMany:
        if next(folder.glob("*.py"), None) is not None:
            raise
        files = []  # of data
    if any(path.suffix == ".py" for _, path in files):
        yield from files
    elif (root / f"{name}.py").is_file():
        yield f"{name}.py", root / f"{name}.py"


def _names(file: Path) -> set[str]:
    """The first parts of the names that a module imports; none of one that is no Python or too
    deep, which is found out when it is run, or of one that is as long as only a table is."""
    try:
        if file.stat().st_size > MOST_READ:
            return set()
        tree = ast.parse(file.read_bytes()[:MOST_READ], str(file))
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


class TooMany(Exception):
    """A folder has more files than a program may have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.folder = folder


def _whole(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Every file below a folder but hidden and compiled ones; links to folders are not followed."""
    rest, seen = _names_in(folder), 0
    while rest:
        path, seen = rest.pop(), seen + 1
        if seen > _MOST_NAMES:
            raise TooMany(folder)
        if path.is_dir() and not path.is_symlink():
            rest += _names_in(path)
        elif path.is_file():
            yield path.relative_to(root).as_posix(), path


def _names_in(folder: Path) -> list[Path]:
    """What is in a folder, last name first."""
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _MOST_NAMES + 1)]
    if len(names) > _MOST_NAMES:
        raise TooMany(folder)
    shown = (name for name in names if not name.startswith(".") and name != "__pycache__")
    return [folder / name for name in sorted(shown, reverse=True)]


def _too_large(program: Path, what: str) -> ServerError:
    return ServerError(
        "HR-SERVER-016",
        f"the program {str(program)!r} has {what}",
        f"At most {MOST_FILES:,} files and {MOST_BYTES:,} bytes are taken: put data elsewhere.",
    )
