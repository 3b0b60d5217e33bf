"""HTTP as a client: one request at a time, on a connection that stays open; nothing follows.

Secrets come from the environment, by name, in the process that sends: they are in no program, no
message and no file. Redirects are not followed, since secrets would go along.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from urllib.parse import urlsplit

from headrace.errors import InputError, OutputError

BROKEN = (OSError, HTTPException)  # what a request raises that may succeed later
_PASSING = (408, 425, 429)  # of the answers 4xx: those after which a request may succeed


def permanent(status: int) -> bool:
    """Whether the same request would get the same answer again."""
    return 300 <= status < 500 and status not in _PASSING


@dataclass(frozen=True)
class HttpTarget:
    """Where requests go, and the names of the variables that hold what they need."""

    url: str
    token_env: str | None = None
    headers_env: tuple[tuple[str, str], ...] = ()  # a header, and the variable with its value
    timeout: float = 10.0  # seconds

    @property
    def path(self) -> str:
        parts = urlsplit(self.url)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def missing(self) -> str | None:
        """A variable that the environment has not, if there is one."""
        named = [*([self.token_env] if self.token_env else []), *(v for _, v in self.headers_env)]
        return next((name for name in named if not os.environ.get(name)), None)

    def secrets(self) -> dict[str, str]:
        """The headers that are made of the environment."""
        token = os.environ.get(self.token_env, "") if self.token_env else ""
        found = {"Authorization": f"Bearer {token}"} if token else {}
        return found | {header: os.environ.get(name, "") for header, name in self.headers_env}

    def connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        if parts.scheme == "https":
            context = ssl.create_default_context()
            return HTTPSConnection(
                parts.hostname or "", parts.port, timeout=self.timeout, context=context
            )
        return HTTPConnection(parts.hostname or "", parts.port, timeout=self.timeout)


class HttpClient:
    def __init__(self, target: HttpTarget) -> None:
        self.target = target
        self._connection: HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._answer: HTTPResponse | None = None

    def request(
        self, method: str, body: bytes | None, headers: Mapping[str, str | bytes]
    ) -> HTTPResponse:
        """The answer, whose body is still to be read; raises one of `BROKEN`."""
        connection = self._connection = self._connection or self.target.connect()
        sent = {"User-Agent": "headrace", **headers, **self.target.secrets()}
        try:
            connection.request(method, self.target.path, body, sent)
            self._socket = connection.sock  # which an answer may take over
            self._answer = answer = connection.getresponse()
            return answer
        except BROKEN:
            connection.close()
            self.close()
            raise
        except (ValueError, AttributeError) as cause:  # another thread has closed it meanwhile
            connection.close()
            self.close()
            raise ConnectionAbortedError("the connection was closed") from cause

    def close(self) -> None:
        """Also while another thread reads an answer: it gets the end of it, and closes it."""
        connection, self._connection = self._connection, None
        open_one, self._socket = self._socket, None
        if open_one is not None:
            with suppress(OSError):
                open_one.shutdown(socket.SHUT_RDWR)
            open_one.close()  # when nothing reads from it any more
        if connection is not None:
            connection.close()

    def done(self) -> None:
        """The answer was read, as far as it is of interest; for the thread that has read it."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()
        self.close()


def wrong_url(url: str) -> str:
    """What is wrong with an address, in words; empty if nothing is."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - it is checked when it is asked for
    except ValueError:
        return "its host or its port is none"  # the text may hold a part of a password
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "it does not begin with https://host or http://host"
    if parts.username is not None or parts.password is not None:
        return "a user and a password do not belong in it"
    return "it has a fragment" if parts.fragment else ""


def why(cause: BaseException) -> str:
    """A failure to reach a server, in a few words."""
    text = getattr(cause, "strerror", None) or str(cause) or type(cause).__name__
    return str(text).lower()


def variables(value: object) -> tuple[tuple[str, str], ...] | None:
    """The option headers_env; None if it is not a dict of texts."""
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        return None
    pairs = tuple(value.items())
    texts = all(isinstance(t, str) and t.isprintable() and t for pair in pairs for t in pair)
    return pairs if texts else None


def no_variable(name: str, place: str, error: type[InputError] | type[OutputError]) -> Exception:
    return error(
        "HR-HTTP-003",
        f"the environment has no {name!r}, which {place} needs",
        "Set it before the job, and its Spark, are started.",
    )
