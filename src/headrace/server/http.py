"""The REST interface on a port: loopback and a token by default, TLS for everything else.

`serve` binds the port itself, so that a port that is taken is refused before anything starts, and
port 0 becomes a number. The server runs in a thread; `close` lets requests in hand be answered.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Collection, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from headrace.errors import ServerError
from headrace.server.limits import Limits
from headrace.server.security import Door, is_loopback
from headrace.server.service import Service
from headrace.server.tokens import Tokens

PORT = 8780
_START_SECONDS = 30
_GRACE_SECONDS = 10
_HEADERS = 32_768  # bytes of the lines before a body


class HttpServer:
    """A server that runs until it is closed; `url` is where it is."""

    def __init__(self, server: Any, listener: socket.socket, url: str, port: int) -> None:
        self.url, self.port = url, port
        self._server, self._listener = server, listener
        self._thread = threading.Thread(target=self._run, name="headrace rest", daemon=True)
        self.failed: BaseException | None = None

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:  # `alive` says so; SystemExit is one of uvicorn's ways
            self.failed = error

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> HttpServer:
        self._thread.start()
        for _ in range(_START_SECONDS * 100):
            if self._server.started or not self.alive:
                break
            self._thread.join(0.01)
        if not self._server.started:
            self.close()
            raise ServerError(
                "HR-SERVER-079",
                f"the interface at {self.url} has not started: {self.failed}",
                "Look for the reason in the log of the server.",
            )
        return self

    def close(self, timeout: float = _GRACE_SECONDS + 5) -> None:
        """Take no more requests, answer those in hand, and end."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout)
        self._listener.close()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def require_safe(host: str, cert: Path | None, key: Path | None, plain_http: bool) -> bool:
    """Whether it has TLS; refused is where it should and has not, and a wrong certificate."""
    tls = cert is not None or key is not None
    if not is_loopback(host) and not tls and not plain_http:
        raise ServerError(
            "HR-SERVER-075",
            f"on {host!r} tokens could be read by everybody on the way",
            "Pass --tls-cert and --tls-key; or listen on 127.0.0.1, behind a proxy that has TLS. "
            "--plain-http allows it nevertheless, for a network that is trusted.",
        )
    if tls:
        _check_certificate(cert, key)
    return tls


def serve(
    service: Service,
    host: str = "127.0.0.1",
    port: int = PORT,
    *,
    tokens: Mapping[str, str],
    cert: Path | None = None,
    key: Path | None = None,
    names: Collection[str] = (),
    plain_http: bool = False,
    limits: Limits | None = None,
    ended: Path | None = None,
) -> HttpServer:
    """Serve `service` on `host` and `port`, by TLS with `cert` and `key`.

    `tokens` are those of the roles; `names` further names of this machine that requests may use.
    Other hosts than loopback want TLS, unless `plain_http` says that something in front has it.
    `ended` is the file in which sessions of the page that were ended are remembered.
    """
    import uvicorn  # an extra

    from headrace.server.app import RestApp
    from headrace.server.patience import CONNECTIONS, BoundedProtocol

    tls = require_safe(host, cert, key, plain_http)
    known = Tokens(tokens)
    listener = _bound(host, port)
    port = listener.getsockname()[1]
    door = Door(known, host, port, names, tls=tls, limits=limits, ended=ended)
    config = uvicorn.Config(
        RestApp(service, door),
        http=BoundedProtocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # anybody can write X-Forwarded-For
        timeout_graceful_shutdown=_GRACE_SECONDS,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=_HEADERS,
        ssl_certfile=cert,
        ssl_keyfile=key,
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{shown}:{port}"
    return HttpServer(uvicorn.Server(config), listener, url, port).start()


def _bound(host: str, port: int) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(128)
        except BaseException:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        raise ServerError(
            "HR-SERVER-076",
            f"the server cannot listen on {host}:{port}: {error}",
            "Another server may be running there: `headrace list` would find it. Or choose "
            "another --port.",
        ) from error
    return listener


def _check_certificate(cert: Path | None, key: Path | None) -> None:
    reason = "a certificate and its key are two files" if cert is None or key is None else None
    if reason is None:
        try:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(str(cert), str(key), password=_no_password)
        except (OSError, ValueError) as error:
            reason = str(error)
    if reason is not None:
        raise ServerError(
            "HR-SERVER-077",
            f"TLS cannot be had with {str(cert)!r} and {str(key)!r}: {reason}",
            "Pass a certificate with --tls-cert and its key, without a password, with --tls-key; "
            "both as PEM.",
        )


def _no_password() -> str:
    raise ValueError("the key has a password")
