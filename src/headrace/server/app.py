"""The web application: a request is let in, found in the table of routes, checked and answered.

What the service does blocks, so it is done in threads. An answer is JSON, an error
`{"error": {"code", "fact", "hint", "kind"}}`; a fault of ours tells nothing but that it is one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from headrace.errors import HeadraceError, ServerError
from headrace.server import bodies
from headrace.server.page_files import PageFile, digest_of, page_files
from headrace.server.refusals import missing, status_of
from headrace.server.route import Asked, OtherMethods, RestText, Route, find
from headrace.server.routes import API, TABLE
from headrace.server.security import (
    DATA_POLICY,
    HEADERS,
    PAGE_POLICY,
    Door,
    TooOften,
    Visitor,
)
from headrace.server.service import Service

try:
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import ClientDisconnect, Request
    from starlette.responses import Response
    from starlette.types import Receive, Scope, Send
except ImportError as cause:
    raise missing("starlette") from cause

SLOW_AT_ONCE = 4  # processes that answer what needs the user's program ...
SLOW_WAITING = 32  # ... and requests for them; more are refused

_READ_ON = 16  # as many times the limit is read and dropped, for senders that read only then
_FOR_EVER, _ASK_AGAIN = "private, max-age=31536000, immutable", "no-cache"
_LOG = logging.getLogger("headrace.server")


class RestApp:
    def __init__(self, service: Service, door: Door) -> None:
        self._service, self._door = service, door
        self._files = page_files()
        self._page_digest = digest_of(self._files)
        self._turns = asyncio.Semaphore(SLOW_AT_ONCE)
        self._slow = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":  # a websocket: closed before it is open
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        request = Request(scope, receive)
        try:
            response = await self._answered(request)
        except ClientDisconnect:
            return
        for name, text in HEADERS.items():
            response.headers[name] = text
        response.headers["headrace-page"] = self._page_digest  # a page that is older says so
        response.headers.setdefault("content-security-policy", DATA_POLICY)
        response.headers.setdefault("cache-control", "no-store")
        await response(scope, receive, send)

    async def _answered(self, request: Request) -> Response:
        try:
            return await self._let_in(request)
        except TooOften as early:
            response = _error(429, early.error)
            response.headers["retry-after"] = str(early.seconds)
            return response
        except HeadraceError as error:
            status = status_of(error)
            response = _error(status, error)
            if status == 401:
                response.headers["www-authenticate"] = 'Bearer realm="headrace"'
            if status in (408, 413, 415):  # the rest of the body is not read
                response.headers["connection"] = "close"
            return response
        except (ClientDisconnect, asyncio.CancelledError):
            raise
        except Exception:
            _LOG.exception("a request failed: %s %s", request.method, request.url.path[:200])
            return _error(500, ServerError(
                "HR-SERVER-059", "the server failed to answer", "Its log says why."
            ))  # fmt: skip

    async def _let_in(self, request: Request) -> Response:
        door, method = self._door, request.method
        address = request.client.host if request.client else "unknown"
        door.check_host(request.headers.getlist("host"))
        door.count(address)
        parts = _parts(request)
        cookies = door.cookies(request.headers.get("cookie", ""))
        if parts[:1] in (("",), ("page",)):
            return self._page(request, "/".join(parts))
        door.check_origin(method, request.headers, cookie=bool(cookies))
        try:
            found = find(TABLE, "GET" if method == "HEAD" else method, parts)
        except OtherMethods as other:
            return _methods(method, other.methods)
        if found is None:
            raise ServerError(
                "HR-SERVER-053",
                f"there is no {request.url.path[:200]!r}",
                f"The interface is below {API}, and described in /openapi.json.",
            )
        route, given = found
        if route.role is None:
            return await self._session(route, request, cookies, address)
        caller = door.caller(request.headers, cookies, address)
        door.check_role(caller, route.role)
        return await self._served(route, given, request, caller)

    async def _served(
        self, route: Route, given: dict[str, str], request: Request, caller: Visitor
    ) -> Response:
        path = bodies.query(route.parameters, list(given.items()), "part of the path")
        query = bodies.query(dict(route.query), _query_of(request))
        body = await self._body(route, request)
        asked = Asked(path, query, body, caller.role, caller.name)
        call = route.call
        assert call is not None
        found = await self._called(route.slow, lambda: call(self._service, asked))
        if isinstance(found, RestText):
            return Response(found.text, route.status, media_type=found.kind)
        return _json(route.status, found) if route.answer is not None else Response(status_code=204)

    async def _called(self, slow: bool, call: Callable[[], Any]) -> Any:
        if not slow:
            return await run_in_threadpool(call)
        if self._slow >= SLOW_WAITING:
            raise ServerError(
                "HR-SERVER-067",
                f"{self._slow} requests that run the program of a job are waiting",
                "Try again in some seconds.",
            )
        self._slow += 1
        try:
            async with self._turns:
                return await run_in_threadpool(call)
        finally:
            self._slow -= 1

    async def _body(self, route: Route, request: Request) -> dict[str, Any]:
        """What is asked; a body that may be left out is an empty object."""
        if route.body is None:
            return {}
        raw = await self._read(request)
        if not raw and "required" not in route.body:
            return {}
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ServerError(
                "HR-SERVER-065",
                f"the body is {kind or 'of no type'!r}, not JSON",
                "Send JSON, with the header Content-Type: application/json.",
            )
        found: dict[str, Any] = bodies.check(route.body, bodies.read_json(raw))
        return found

    async def _read(self, request: Request) -> bytes:
        limits, found, size = self._door.limits, bytearray(), 0
        try:
            async with asyncio.timeout(limits.body_seconds):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= limits.body:
                        found += chunk
                    elif size > limits.body * _READ_ON:
                        break
        except TimeoutError:
            raise ServerError(
                "HR-SERVER-068",
                f"the body has not come within {limits.body_seconds:g} s",
                "Send it at once.",
            ) from None
        if size > limits.body:
            raise ServerError(
                "HR-SERVER-066", f"a body has at most {limits.body} bytes", "Send less at once."
            )
        return bytes(found)

    async def _session(
        self, route: Route, request: Request, cookies: list[str], address: str
    ) -> Response:
        bodies.query({}, _query_of(request))
        if route.method == "DELETE":
            response = Response(status_code=204)
            response.headers["set-cookie"] = self._door.end(cookies)
            return response
        body = await self._body(route, request)
        role, cookie = self._door.session(body["token"], address)
        response = _json(200, {"role": role})
        response.headers["set-cookie"] = cookie
        return response

    def _page(self, request: Request, path: str) -> Response:
        """A file of the page: one of those that were there at the start, by its exact name."""
        if request.method not in ("GET", "HEAD"):
            return _methods(request.method, ("GET",))
        file: PageFile | None = self._files.get(path)
        if file is None:
            raise ServerError(
                "HR-SERVER-053", f"there is no {request.url.path[:200]!r}", "The page is at /."
            )
        known = request.headers.get("if-none-match") == file.tag
        packs = "gzip" in request.headers.get("accept-encoding", "")
        content = file.packed if packs else file.content
        response = Response(b"" if known else content, 304 if known else 200)
        response.headers["content-type"] = file.kind
        response.headers["etag"] = file.tag
        response.headers["vary"] = "accept-encoding"
        if packs and not known:
            response.headers["content-encoding"] = "gzip"
        response.headers["cache-control"] = _FOR_EVER if file.is_final else _ASK_AGAIN
        response.headers["content-security-policy"] = PAGE_POLICY
        return response


def _parts(request: Request) -> tuple[str, ...]:
    """The parts of the path as they were sent, each decoded by itself: %2F divides nothing."""
    raw: bytes = request.scope.get("raw_path") or request.url.path.encode()
    try:
        return tuple(
            unquote_to_bytes(part).decode() for part in raw.partition(b"?")[0][1:].split(b"/")
        )
    except UnicodeDecodeError:
        raise ServerError(
            "HR-SERVER-069", "the address is not UTF-8", "Encode names as UTF-8, then with %."
        ) from None


def _query_of(request: Request) -> list[tuple[str, str]]:
    raw: bytes = request.scope.get("query_string", b"")
    try:
        return parse_qsl(
            raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=100
        )
    except ValueError as error:
        raise ServerError(
            "HR-SERVER-069",
            f"the parameters of the address cannot be read: {error}",
            "Write name=value&name=value, encoded as UTF-8, then with %.",
        ) from None


def _methods(method: str, methods: tuple[str, ...]) -> Response:
    """What may be done with a path: the answer to OPTIONS, and to a method that is none of it."""
    allowed = [*methods, *(["HEAD"] if "GET" in methods else []), "OPTIONS"]
    if method == "OPTIONS":  # of another origin it is refused before, so nothing is said of CORS
        response = Response(status_code=204)
    else:
        response = _error(405, ServerError(
            "HR-SERVER-054", f"{method[:20]} is not possible here",
            f"Possible are {', '.join(allowed)}.",
        ))  # fmt: skip
    response.headers["allow"] = ", ".join(allowed)
    return response


def _json(status: int, value: Any) -> Response:
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:  # a figure that is no number, such as a rate of nothing in no time
        text = json.dumps(_finite(value))
    return Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return [_finite(inner) for inner in value] if isinstance(value, list | tuple) else value


def _error(status: int, error: HeadraceError) -> Response:
    said = {
        "code": error.code,
        "fact": error.message,
        "hint": error.hint,
        "kind": type(error).__name__,
    }
    return _json(status, {"error": said})
