"""Are the files of others that the page carries those of their npm package?

`python -m tools.vendored` asks npm for the package of the version that is noted beside them, and
compares each file with it. Nothing of the package is run.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "src/headrace/server/page/vendor"


class NoPackage(Exception):
    """npm is not there, or did not give the package."""


@dataclass(frozen=True)
class Vendored:
    """A package as the note beside its files has it."""

    name: str
    version: str
    licence: str
    integrity: str
    files: Mapping[str, Mapping[str, str]]


def notes(folder: Path = FOLDER) -> list[Vendored]:
    return [Vendored(**json.loads(p.read_text("utf-8"))) for p in sorted(folder.glob("*.json"))]


def unlike_notes(folder: Path = FOLDER) -> list[str]:
    """What differs between the files and their notes; nothing is fetched for it."""
    noted = {name: file["sha256"] for note in notes(folder) for name, file in note.files.items()}
    there = {p.name: _sha256(p.read_bytes()) for p in folder.iterdir() if p.suffix != ".json"}
    return [
        f"{name}: {there.get(name, 'is missing')}, noted {noted.get(name, 'nowhere')}"
        for name in sorted(noted.keys() | there.keys())
        if noted.get(name) != there.get(name)
    ]


def unlike_package(note: Vendored, folder: Path = FOLDER) -> list[str]:
    """The files that are not as the package has them."""
    with tempfile.TemporaryDirectory() as scratch:
        package = _fetched(note, Path(scratch))
        with tarfile.open(package) as archive:
            return [
                name
                for name, file in note.files.items()
                if _member(archive, f"package/{file['in_package']}") != (folder / name).read_bytes()
            ]


def _fetched(note: Vendored, folder: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None:
        raise NoPackage("there is no npm")
    options = ["--fetch-retries=0", "--fetch-timeout=20000", "--ignore-scripts", "--json"]
    done = subprocess.run(
        [npm, "pack", f"{note.name}@{note.version}", *options],
        cwd=folder, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode:
        raise NoPackage(done.stderr.strip() or done.stdout.strip())
    packed = json.loads(done.stdout)[0]
    if packed["integrity"] != note.integrity:
        raise SystemExit(f"{note.name}: the package is {packed['integrity']}, not as noted")
    return folder / packed["filename"]


def _member(archive: tarfile.TarFile, name: str) -> bytes | None:
    try:
        found = archive.extractfile(name)
    except KeyError:
        return None
    return found.read() if found is not None else None


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def main() -> int:
    wrong = unlike_notes()
    for note in notes():
        try:
            wrong += unlike_package(note)
        except NoPackage as reason:
            print(f"{note.name} {note.version} was not compared: {reason}")
        else:
            print(f"{note.name} {note.version} ({note.licence}) compared with its package")
    print("\n".join(wrong) or "the files are as noted")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
