"""A registry of schemas: what the number in front of a record means.

`registry="http://host:8081"` asks a server, as Confluent's is asked; `registry="file:folder"` reads
`<id>.json` in a folder, with what such a server answers, or `<id>.avsc`. A schema never changes, so
it is asked for once per process. A number that the registry does not know is the record's fault; a
registry that does not answer is an InputError.
"""

from __future__ import annotations

import base64
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from headrace.errors import InputError

ANSWER = 10  # seconds for an answer
TRIES = 3


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    kind: str  # "AVRO", "JSON" or "PROTOBUF"
    text: str


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where schemas are; `auth` is "user:password", and never shown."""

    place: str
    auth: str | None = None

    def __repr__(self) -> str:
        return f"<schema registry {self.place}>"

    def check(self) -> None:
        """Refuse a place that is none; nothing is asked."""
        parts = urlsplit(self.place)
        good = parts.scheme in ("http", "https") and parts.hostname
        if "@" in parts.netloc:
            raise InputError(
                "HR-KAFKA-009",
                "the address of a schema registry holds a user name or a password",
                'Leave it out, and pass registry_auth="env:REGISTRY_AUTH" ("user:password").',
            )
        if not good and not (parts.scheme == "file" and parts.path):
            raise InputError(
                "HR-KAFKA-009",
                f"{self.place!r} is not a schema registry",
                'Write registry="http://host:8081", or "file:folder".',
            )

    def schema(self, id: int) -> RegisteredSchema | None:
        """The schema of this number; None if there is none, and then it is asked for again."""
        key = (self.place, self.auth, id)
        if key not in _known and (found := _looked_up(*key)) is not None:
            _known[key] = found
        return _known.get(key)


_known: dict[tuple[str, str | None, int], RegisteredSchema] = {}  # of this process


def _looked_up(place: str, auth: str | None, id: int) -> RegisteredSchema | None:
    if place.startswith("file:"):
        return _in_folder(Path(place.removeprefix("file:")), id)
    answer = _asked(place, auth, id)
    return None if answer is None else _registered(answer, f"{place}/schemas/ids/{id}")


def _in_folder(folder: Path, id: int) -> RegisteredSchema | None:
    try:
        if (plain := folder / f"{id}.avsc").exists():
            return RegisteredSchema("AVRO", plain.read_text(encoding="utf-8"))
        described = folder / f"{id}.json"
        if described.exists():
            return _registered(described.read_bytes(), str(described))
        if folder.is_dir():
            return None
    except OSError as cause:
        raise _silent(f"file:{folder}", str(cause)) from cause
    raise _silent(f"file:{folder}", "there is no such folder")


def _asked(place: str, auth: str | None, id: int) -> bytes | None:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
    if auth is not None:
        headers["Authorization"] = f"Basic {base64.b64encode(auth.encode()).decode()}"
    request = Request(f"{place.rstrip('/')}/schemas/ids/{id}", headers=headers)
    for attempt in range(TRIES):
        try:
            with urlopen(request, timeout=ANSWER) as answer:
                content: bytes = answer.read()
                return content
        except HTTPError as cause:
            if cause.code == 404:
                return None
            why = f"it answers {cause.code}"
            cause.close()
            if cause.code < 500:
                break
        except OSError as cause:
            why = str(getattr(cause, "reason", cause))
        time.sleep(0.2 * 2**attempt)
    raise _silent(place, why)


def _registered(content: bytes, where: str) -> RegisteredSchema:
    try:
        answer: Any = json.loads(content)
        if answer.get("references"):
            raise InputError(
                "HR-KAFKA-010",
                f"the schema {where} refers to other schemas",
                "Register it with all types in one schema: references are not supported.",
            )
        return RegisteredSchema(answer.get("schemaType", "AVRO"), str(answer["schema"]))
    except (ValueError, KeyError, AttributeError) as cause:
        raise _silent(where, "it does not answer with a schema") from cause


def _silent(place: str, why: str) -> InputError:
    return InputError(
        "HR-KAFKA-010",
        f"the schema registry {place} cannot be asked: {why}",
        "Start it, or correct registry= and registry_auth=; the job reads on from where it was.",
    )
