"""Requests to a server of jobs, from another process: one connection for each, and nothing else.

What the server refuses is raised here as the error that it was there, with code, fact and hint.
Redirects are not followed and proxies not asked: the token goes to the address that was given.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from headrace import errors
from headrace.errors import HeadraceError, ServerError
from headrace.server.tokens import LONGEST

URL_VARIABLE = "HEADRACE_SERVER_URL"
TOKEN_VARIABLE = "HEADRACE_SERVER_TOKEN"
_MOST = 256 << 20  # bytes of an answer


class RestConnection:
    """An address, and what is sent along with every request."""

    def __init__(self, url: str, token: str, ca: str | Path | None, timeout: float) -> None:
        parts = _split(url)
        self.url, self._host, self._port = url.rstrip("/"), parts[1], parts[2]
        self._timeout, self._tls = timeout, parts[0] == "https"
        self._token = _checked_token(token)
        self._context = _context(ca) if self._tls else None

    def ask(
        self,
        method: str,
        *path: str,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The JSON that is answered, None if nothing is; parts of the path may be any text."""
        where = "/api/v1/" + "/".join(quote(part, safe="") for part in path)
        chosen = {k: v for k, v in (query or {}).items() if v is not None}
        if chosen:
            where += "?" + urlencode(chosen)
        status, kind, raw = self._sent(method, where, body)
        if kind != "application/json" and raw:
            raise self._stranger(f"it answered {status} with {kind or 'something'}, not JSON")
        try:
            found = json.loads(raw) if raw else None
        except ValueError:
            raise self._stranger("its JSON cannot be read") from None
        if status < 400:
            return found
        raise self._refused(status, where, found)

    def _sent(
        self, method: str, where: str, body: Mapping[str, Any] | None
    ) -> tuple[int, str, bytes]:
        connection = self._opened()
        headers = {"Authorization": f"Bearer {self._token}", "Accept": "application/json"}
        text = None
        if body is not None:
            text, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection.request(method, where, text, headers)
            answer = connection.getresponse()
            raw = answer.read(_MOST + 1)
        except ssl.SSLError as error:
            raise ServerError(
                "HR-SERVER-087",
                f"no safe connection to {self.url}: {error.reason or error}",
                "If the server has a certificate of its own, pass it as ca=, or as the "
                "environment's SSL_CERT_FILE. A server without TLS has an address with http:.",
            ) from error
        except TimeoutError as error:
            raise ServerError(
                "HR-SERVER-080",
                f"the server at {self.url} has not answered within {self._timeout:g} s",
                "Try again; its log may say what it waits for.",
            ) from error
        except OSError as error:
            raise ServerError(
                "HR-SERVER-080",
                f"there is no server at {self.url}: {error.strerror or error}",
                "Start one with `headrace server`, or give the address of one that runs.",
            ) from error
        except http.client.HTTPException as error:
            raise self._stranger(f"it does not speak HTTP ({type(error).__name__})") from error
        finally:
            connection.close()
        if len(raw) > _MOST:
            raise self._stranger("its answer has no end")
        return answer.status, answer.headers.get_content_type(), raw

    def _opened(self) -> http.client.HTTPConnection:
        if self._context is not None:
            return http.client.HTTPSConnection(
                self._host, self._port, timeout=self._timeout, context=self._context
            )
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _refused(self, status: int, where: str, found: Any) -> HeadraceError:
        said = found.get("error") if isinstance(found, dict) else None
        if not isinstance(said, dict) or not all(
            isinstance(said.get(key), str) for key in ("code", "fact")
        ):
            return self._stranger(f"it answered {status} without saying why")
        if said["code"] in ("HR-SERVER-053", "HR-SERVER-054"):  # no such route
            return skew(f"it does not know {where.partition('?')[0]}: {said['fact']}")
        kind = getattr(errors, str(said.get("kind")), None)
        if not (isinstance(kind, type) and issubclass(kind, HeadraceError)):
            kind = ServerError
        return kind(said["code"], said["fact"], said.get("hint"))

    def _stranger(self, why: str) -> ServerError:
        return ServerError(
            "HR-SERVER-083",
            f"what answers at {self.url} is no server of Headrace: {why}",
            "Give the address that `headrace server` printed at its start.",
        )


def skew(what: str) -> ServerError:
    """The server is of another version of Headrace, and that matters here."""
    return ServerError(
        "HR-SERVER-084",
        f"the server is of another version of Headrace: {what}",
        "Install the same version here and there: `headrace --version` shows ours, `headrace "
        "list --json` that of the server.",
    )


def _split(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        bare = not (parts.username or parts.password or parts.query or parts.fragment)
        fits = parts.scheme in ("http", "https") and bare and parts.path in ("", "/")
        if fits and parts.hostname is not None:
            return parts.scheme, parts.hostname, parts.port
    except ValueError:
        pass
    raise ServerError(
        "HR-SERVER-081",
        f"{_without_secrets(url)!r} is not the address of a server",
        "Write http://127.0.0.1:8780 or https://host:8780; the token is passed apart from it.",
    )


def _without_secrets(url: str) -> str:
    shown = f"...@{url.rpartition('@')[2]}" if "@" in url else url
    return shown.partition("?")[0].partition("#")[0]


def _checked_token(token: str) -> str:
    if not token or len(token) > LONGEST or not token.isascii() or not token.isprintable():
        raise ServerError(
            "HR-SERVER-082",
            "the token for the server cannot be one",
            "Pass it whole, as the file tokens.json of the server's home has it.",
        )
    return token


def _context(ca: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca is None else os.fspath(ca))
    except (OSError, ssl.SSLError) as error:
        raise ServerError(
            "HR-SERVER-087",
            f"the certificate {str(ca)!r} cannot be used: {error}",
            "Pass a file of certificates, as PEM.",
        ) from error
