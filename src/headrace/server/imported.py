"""What a program imports from beside it, found by reading it; nothing is run.

Imports that a program computes (`importlib.import_module(name)`) are not found: such a program is
submitted as a folder.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import ServerError

MAIN = ("__main__.py", "job.py")  # of a program that is a folder
MOST_FILES = 2_000
MOST_BYTES = 64 << 20


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
        found = dict(_whole(program, program))
    else:
        main, found = program.name, _beside(program)
    _check_size(program, found)
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
    if (root / name).is_dir() and any((root / name).rglob("*.py")):
        yield from _whole(root / name, root)
    elif (root / f"{name}.py").is_file():
        yield f"{name}.py", root / f"{name}.py"


def _names(file: Path) -> set[str]:
    """The first parts of the names that a module imports; none of one that is no Python, which
    is found out when it is run."""
    try:
        tree = ast.parse(file.read_bytes(), str(file))
    except (SyntaxError, ValueError, OSError):
        return set()
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            names.add(node.module.partition(".")[0])
    return names


def _whole(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    """Every file below a folder but hidden and compiled ones; links to folders are not followed."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name == "__pycache__":
            continue
        if path.is_dir() and not path.is_symlink():
            yield from _whole(path, root)
        elif path.is_file():
            yield path.relative_to(root).as_posix(), path


def _check_size(program: Path, files: dict[str, Path]) -> None:
    size = sum(path.stat().st_size for path in files.values())
    if len(files) > MOST_FILES or size > MOST_BYTES:
        raise ServerError(
            "HR-SERVER-016",
            f"the program {str(program)!r} has {len(files):,} files with {size:,} bytes",
            f"At most {MOST_FILES:,} files and {MOST_BYTES:,} bytes are taken: put data elsewhere.",
        )
