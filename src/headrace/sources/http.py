"""Records that programs POST to the job, as an input: "http:8080/orders".

The endpoint runs on the driver. A POST is answered with 200 when its records are durable in the
job's folder (see `receiving.py`); what was not answered so, the sender sends again, with the same
`Idempotency-Key` if it must be stored once. Wants a token by default, and listens on loopback.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from headrace.clock import millis
from headrace.errors import InputError
from headrace.guarantees import AT_LEAST_ONCE
from headrace.sources import formats
from headrace.sources.contract import InputRequest, Source, refuse_unknown
from headrace.sources.http_endpoint import Endpoint, EndpointSettings
from headrace.sources.received import LineWriter, Received
from headrace.sources.receiving import BackgroundReceiver, ReceivedSource, line_format
from headrace.state.sealed import make_folder

TOKEN = "token"  # the file of the input's folder that has a token that was generated
LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY_MB = 16
MOST_BODY_MB = 1024
PORTS = 65_536
_PLACE = re.compile(r"(?://)?(?:(?P<host>\[[^\]]+\]|[^:/]*):)?(?P<port>\d+)(?P<path>/[^?#]*)?")
_KNOWN = ("delimiter", "token", "token_env", "max_body_mb", "on_bad", "remember")


@dataclass(frozen=True)
class HttpPlace:
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}{self.path}"


class HttpSource(ReceivedSource):
    kind = "http"
    again = "What was posted is not posted again"
    guarantee = AT_LEAST_ONCE
    because = (
        "a POST is answered when it is stored; one that got no answer and is sent again counts "
        "once only under the same Idempotency-Key"
    )

    def __init__(
        self,
        at: HttpPlace,
        settings: EndpointSettings,
        schema: pa.Schema,
        *,
        format: str,
        delimiter: str,
        token: bool,
        token_env: str | None,
        home: Path | None,
    ) -> None:
        super().__init__(
            str(at), schema, format=format, delimiter=delimiter, bounded=False, home=home
        )
        self._at, self._settings = at, settings
        self._wants_token, self._token_env = token, token_env

    def receiver(self, received: Received) -> BackgroundReceiver:
        token = self._token(received.home) if self._wants_token else None
        return HttpReceiver(self, self._at, self._settings, token, received)

    def _token(self, home: Path) -> str:
        if self._token_env is not None:
            token = os.environ.get(self._token_env, "")
            if not token:
                raise InputError(
                    "HR-HTTP-003",
                    f"the environment has no {self._token_env!r}, the token of {self.place}",
                    "Set it before the job is started; or leave token_env= out: a token is "
                    "generated then.",
                )
            return token
        return generated_token(home)


class HttpReceiver(BackgroundReceiver):
    """Serves the endpoint until it is stopped; requests that are being stored are answered."""

    def __init__(
        self,
        source: HttpSource,
        at: HttpPlace,
        settings: EndpointSettings,
        token: str | None,
        received: Received,
    ) -> None:
        self._source, self._at, self._settings = source, at, settings
        self._token_text, self.endpoint = token, None
        super().__init__(str(at), received)

    endpoint: Endpoint | None

    def receive(self, writer: LineWriter) -> None:
        self.endpoint = Endpoint(
            (self._at.host, self._at.port, self._at.path),
            self._settings,
            self._token_text,
            writer,
            self._received.home,
            self._reasons,
            lambda: self.committed,
        )
        with self.endpoint as endpoint:
            while not self._stop.wait(0.1):
                if endpoint.failed is not None:
                    raise endpoint.failed
                if not endpoint.alive:
                    raise RuntimeError("a thread of the endpoint has ended")

    def _reasons(self, lines: pa.Array) -> list[tuple[int, str]]:
        """The lines that are bad, and why."""
        style = formats.CsvStyle(self._source._delimiter)
        format = str(self._source.format)
        _, bad, reasons = formats.decode(format, lines, self._source.schema, style=style)
        return list(zip(bad.nonzero()[0].tolist(), reasons, strict=True))


def generated_token(home: Path) -> str:
    """The token in the input's folder, made at the first start; only its owner may read it."""
    path = home / TOKEN
    make_folder(home)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise InputError(
                "HR-HTTP-003",
                f"others may read the token in {str(path)!r}",
                f"chmod 600 {path}; or remove it: another is generated at the next start.",
            ) from None
        token = path.read_text(encoding="ascii").strip()
        if token:
            return token
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)  # of a start that was cut
    token = secrets.token_urlsafe(32)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(token + "\n")
        file.flush()
        os.fsync(file.fileno())
    return token


def place_of(rest: str, uri: str) -> HttpPlace:
    match = _PLACE.fullmatch(rest)
    if match is None or not 0 < int(match["port"]) < PORTS:
        raise InputError(
            "HR-INPUT-001",
            f"{uri!r} is not an endpoint",
            'Write "http:port/path", as in "http:8080/orders", or "http:host:port/path".',
        )
    host = (match["host"] or LOOPBACK[0]).strip("[]")
    return HttpPlace(host, int(match["port"]), match["path"] or "/")


def open_http(o: InputRequest) -> Source:
    refuse_unknown(o, _KNOWN)
    at = place_of(o.rest, o.uri)
    if o.bounded:
        raise InputError(
            "HR-INPUT-013",
            f"{o.uri!r} has no end to run to",
            'An endpoint may always get another POST: run without until="end".',
        )
    format, schema = line_format(o)
    token, token_env = o.options.get("token", True), o.options.get("token_env")
    limit, on_bad = o.options.get("max_body_mb", MAX_BODY_MB), o.options.get("on_bad", "dead")
    if type(token) is not bool:
        raise _bad(o, "token", "...", 'A token is not written in a program: token_env="NAME".')
    if token_env is not None and (not isinstance(token_env, str) or not token_env):
        raise _bad(o, "token_env", token_env, "Name a variable of the environment.")
    if not token and at.host not in LOOPBACK:
        raise InputError(
            "HR-HTTP-001",
            f"{o.uri!r} would take POSTs of everybody who can reach {at.host!r}",
            "Leave token=False out, or listen on this machine only: 127.0.0.1.",
        )
    if type(limit) is not int or not 1 <= limit <= MOST_BODY_MB:
        raise _bad(o, "max_body_mb", limit, f"Give megabytes, 1 to {MOST_BODY_MB}.")
    if on_bad not in ("dead", "refuse"):
        raise _bad(o, "on_bad", on_bad, 'Pass "dead" (dead letters) or "refuse" (400).')
    settings = EndpointSettings(
        limit << 20,
        on_bad == "refuse",
        millis(o.options.get("remember", "1d")),
        json=format == "json",
        blank=format == "text",
    )
    return HttpSource(
        at,
        settings,
        schema,
        format=format,
        delimiter=o.options.get("delimiter", ","),
        token=token,
        token_env=token_env,
        home=o.home,
    )


def _bad(o: InputRequest, option: str, value: object, hint: str) -> InputError:
    shown = value if value == "..." else repr(value)
    return InputError("HR-INPUT-013", f"{o.uri!r} has {option}={shown}", hint)
