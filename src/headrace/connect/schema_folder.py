"""A folder that answers as a schema registry does, for tests and for what has no server.

    7.json                        schema 7, as a server answers /schemas/ids/7
    7.avsc, 7.proto               the same, with nothing but the text
    subjects/orders-value/3       version 3 of a subject: the number of its schema

Registering writes files; two processes that register at once get different numbers. No
compatibility is checked.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

_PLAIN = {".avsc": "AVRO", ".proto": "PROTOBUF"}


def answered(place: str, path: str, body: Any = None) -> bytes | None:
    """What a server would answer; None for 404. OSError if there is no such folder."""
    folder = Path(place)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {place!r}")
    match path.strip("/").split("/"):
        case ["schemas", "ids", id]:
            found = _schema(folder, int(id))
        case ["subjects", subject, "versions"] if body is not None:
            found = {"id": _register(folder, unquote(subject), body)}
        case ["subjects", subject, "versions", version]:
            found = _version(folder, unquote(subject), version)
        case _:
            return None
    return None if found is None else json.dumps(found).encode()


def _schema(folder: Path, id: int) -> dict[str, Any] | None:
    for suffix, kind in _PLAIN.items():
        if (path := folder / f"{id}{suffix}").exists():
            return {"schemaType": kind, "schema": path.read_text(encoding="utf-8")}
    path = folder / f"{id}.json"
    if not path.exists():
        return None
    try:
        answer: dict[str, Any] = json.loads(path.read_bytes())
    except ValueError as cause:
        raise OSError(f"{path} is not JSON") from cause
    return answer


def _subject(folder: Path, subject: str) -> Path:
    return folder / "subjects" / subject.replace("/", "%2F")


def _version(folder: Path, subject: str, version: str) -> dict[str, Any] | None:
    place = _subject(folder, subject)
    numbers = sorted(int(p.name) for p in place.glob("[0-9]*")) if place.is_dir() else []
    wanted = numbers[-1] if version == "latest" and numbers else version
    if int(wanted) not in numbers if str(wanted).isdecimal() else True:
        return None
    id = int((place / str(wanted)).read_text())
    found = _schema(folder, id)
    return None if found is None else {"id": id, "version": int(wanted), **found}


def _register(folder: Path, subject: str, body: dict[str, Any]) -> int:
    place = _subject(folder, subject)
    place.mkdir(parents=True, exist_ok=True)
    id = next((i for i in _ids(folder) if _same(_schema(folder, i), body)), None)
    if id is None:
        id = _created(folder, json.dumps(body), ".json")
    if not any(int(p.read_text()) == id for p in place.glob("[0-9]*")):
        _created(place, str(id), "")
    return id


def _ids(folder: Path) -> list[int]:
    return sorted(int(p.stem) for p in folder.iterdir() if p.stem.isdecimal() and p.is_file())


def _same(one: dict[str, Any] | None, body: dict[str, Any]) -> bool:
    if one is None:
        return False
    kinds = [o.get("schemaType") or "AVRO" for o in (one, body)]
    return kinds[0] == kinds[1] and one.get("schema") == body["schema"]


def _created(folder: Path, content: str, suffix: str) -> int:
    """The number of a new file, whole when it is seen."""
    number = max(_ids(folder), default=0) + 1
    new = folder / f".{os.getpid()}.new"
    new.write_text(content, encoding="utf-8")
    while True:
        try:
            os.link(new, folder / f"{number}{suffix}")
            new.unlink()
            return number
        except FileExistsError:
            number += 1
