"""A registry of schemas: what the number in front of a record means.

`registry="http://host:8081"` asks a server, as Confluent's is asked; `registry="file:folder"` is a
folder (`schema_folder.py`), for tests. A schema never changes, so it is asked for once per process,
with all that it refers to. A number that the registry does not know is None; a registry that does
not answer, or refuses, is a LogError.
"""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from headrace.connect import schema_folder
from headrace.errors import LogError

ANSWER = 10  # seconds for an answer
TRIES = 3
DEEPEST = 32  # references of references
_JSON = "application/vnd.schemaregistry.v1+json"
_MISSING, _INCOMPATIBLE = 404, 409
_UNUSABLE = (_INCOMPATIBLE, 422)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema, with what it refers to: names as it has them, and the schemas there."""

    kind: str  # "AVRO", "JSON" or "PROTOBUF"
    text: str
    references: tuple[tuple[str, RegisteredSchema], ...] = ()

    def everything(self) -> dict[str, RegisteredSchema]:
        """All schemas that it refers to, by name; what another one needs comes before it."""
        found: dict[str, RegisteredSchema] = {}
        for name, schema in self.references:
            found |= {n: s for n, s in schema.everything().items() if n not in found}
            found.setdefault(name, schema)
        return found


@dataclass(frozen=True, slots=True)
class SchemaRegistry:
    """Where schemas are; `auth` is "user:password", and never shown."""

    place: str
    auth: str | None = None
    validates: bool = True  # whether JSON documents are checked by their schemas

    def __repr__(self) -> str:
        return f"<schema registry {self.place}>"

    def check(self) -> None:
        """Refuse a place that is none; nothing is asked."""
        try:
            parts = urlsplit(self.place)
            good = parts.scheme in ("http", "https") and bool(parts.hostname)
            good = good and parts.port != 0 and not set(parts.netloc) & set(" \t\\")
        except ValueError:  # a port that is no number, half of an IPv6 address
            parts, good = urlsplit("none:"), False
        if "@" in parts.netloc:
            raise LogError(
                "HR-KAFKA-009",
                "the address of a schema registry holds a user name or a password",
                'Leave it out, and pass registry_auth="env:REGISTRY_AUTH" ("user:password").',
            )
        if not good and not (parts.scheme == "file" and parts.path):
            raise LogError(
                "HR-KAFKA-009",
                f"{self.place!r} is not a schema registry",
                'Write registry="http://host:8081", or "file:folder".',
            )

    def schema(self, id: int) -> RegisteredSchema | None:
        """The schema of this number; None if there is none, and then it is asked for again."""
        key = (self.place, self.auth, id)
        if key not in _known and (answer := self._asked(f"/schemas/ids/{id}")) is not None:
            _known[key] = self._registered(answer, 0)
        return _known.get(key)

    def latest(self, subject: str) -> tuple[int, RegisteredSchema] | None:
        """The number and the schema of the newest version of a subject; None if it has none."""
        answer = self._asked(f"/subjects/{quote(subject, safe='')}/versions/latest")
        if answer is None:
            return None
        return _number(self.place, answer), self._registered(answer, 0)

    def register(self, subject: str, kind: str, text: str) -> int:
        """The number of the schema, which becomes a version of the subject unless it is one."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        answer = self._asked(path, {"schemaType": kind, "schema": text})
        if answer is None:
            raise self._silent("it answers 404")
        return _number(self.place, answer)

    def _registered(self, answer: Mapping[str, Any], depth: int) -> RegisteredSchema:
        text = str(_field(self.place, answer, "schema"))
        kind = str(answer.get("schemaType") or "AVRO")
        references = answer.get("references") or []
        if not isinstance(references, list):
            raise self._silent(f"the references of a schema are {references!r}")
        return RegisteredSchema(kind, text, tuple(self._referred(r, depth) for r in references))

    def _referred(self, reference: Any, depth: int) -> tuple[str, RegisteredSchema]:
        try:
            name, subject, version = (reference[n] for n in ("name", "subject", "version"))
            version = int(version)
        except (TypeError, KeyError, ValueError) as cause:
            raise self._silent(f"a reference of a schema is {reference!r}") from cause
        path = f"/subjects/{quote(str(subject), safe='')}/versions/{version}"
        answer = self._asked(path) if depth < DEEPEST else None
        if answer is None:
            raise self._silent(
                f"version {version} of subject {subject!r}, to which a schema refers, is not there"
            )
        return str(name), self._registered(answer, depth + 1)

    def _asked(self, path: str, body: Any = None) -> Mapping[str, Any] | None:
        """The answer; None if there is nothing of this name."""
        if self.place.startswith("file:"):
            try:
                content = schema_folder.answered(self.place.removeprefix("file:"), path, body)
            except OSError as cause:
                raise self._silent(str(cause)) from cause
        else:
            content = self._sent(path, body)
        try:
            answer = None if content is None else json.loads(content)
        except ValueError as cause:
            raise self._silent(f"{path} is not JSON") from cause
        if not isinstance(answer, dict | None):
            raise self._silent(f"{path} is not an object")
        return answer

    def _sent(self, path: str, body: Any) -> bytes | None:
        headers = {"Accept": _JSON, "Content-Type": _JSON}
        if self.auth is not None:
            headers["Authorization"] = f"Basic {base64.b64encode(self.auth.encode()).decode()}"
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"{self.place.rstrip('/')}{path}", data, headers)
        for attempt in range(TRIES):
            try:
                with _OPENER.open(request, timeout=ANSWER) as answer:
                    content: bytes = answer.read()
                    return content
            except HTTPError as cause:
                with cause:
                    if cause.code == _MISSING:
                        return None
                    if cause.code in _UNUSABLE and body is not None:
                        raise self._unusable(path, cause) from cause
                    why = f"it answers {cause.code}"
                    if cause.code < 500:
                        break
            except (OSError, HTTPException) as cause:
                why = str(getattr(cause, "reason", cause)) or type(cause).__name__
            time.sleep(0.2 * 2**attempt)
        raise self._silent(why)

    def _unusable(self, path: str, cause: HTTPError) -> LogError:
        try:
            said = str(json.loads(cause.read())["message"])[:500]
        except (ValueError, KeyError, TypeError):
            said = "it does not say why"
        return LogError(
            "HR-KAFKA-055",
            f"the schema registry {self.place} does not take the schema for {path}: {said}",
            "Write columns, or a value_schema=, that go with the versions that are there, or to "
            "another subject=; the registry's compatibility setting says what may change.",
        )

    def _silent(self, why: str) -> LogError:
        return LogError(
            "HR-KAFKA-010",
            f"the schema registry {self.place} cannot be asked: {why}",
            "Start it, or correct registry= and registry_auth=; the job goes on where it was.",
        )


class _NoRedirects(HTTPRedirectHandler):
    """Another host would be sent the password."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = build_opener(_NoRedirects)
_known: dict[tuple[str, str | None, int], RegisteredSchema] = {}  # of this process


def _field(place: str, answer: Mapping[str, Any], name: str) -> Any:
    if name not in answer:
        raise LogError(
            "HR-KAFKA-010",
            f"the schema registry {place} cannot be asked: it does not answer with a schema",
            "Is it a schema registry? Correct registry=; the job goes on where it was.",
        )
    return answer[name]


def _number(place: str, answer: Mapping[str, Any]) -> int:
    found = _field(place, answer, "id")
    if type(found) is not int:
        found = _field(place, {}, "id")
    return int(found)
