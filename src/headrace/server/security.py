"""Which requests are let in: from whom, by which name of this machine, from which page.

- *Host*: only names that the server's owner gave it. A page of another site whose name was pointed
  at this machine (DNS rebinding) names itself here, and is refused.
- *Origin*: a page of another site may make a browser send a request; it is refused by where it
  comes from, and again by the cookie, which is not sent along (SameSite=Strict).
- *Token*: in the header Authorization, or a cookie that the page got for one. Never in an address.
- *Too often*: requests, and wrong tokens, by address.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path
from urllib.parse import urlsplit

from headrace.clock import SystemClock
from headrace.errors import ServerError
from headrace.server.limits import Clients, Limits
from headrace.server.tokens import LONGEST, SESSION_SECONDS, Sessions, Tokens, may

LOOPBACK = ("127.0.0.1", "localhost", "::1")
CHANGES_NOTHING = ("GET", "HEAD", "OPTIONS")
_COOKIE = "headrace"
_MOST_HEADER = 4_096

# What browsers are told about every answer.
HEADERS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
# A drawing may have a style of its own, and can do nothing.
DATA_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'; sandbox"
)


def _seconds() -> float:
    return SystemClock().now() / 1_000


class TooOften(Exception):
    """A request that is early; `error` says so."""

    def __init__(self, seconds: float, error: ServerError) -> None:
        super().__init__(seconds)
        self.seconds, self.error = max(1, math.ceil(seconds)), error


@dataclass(frozen=True, slots=True)
class Visitor:
    role: str
    address: str

    @property
    def name(self) -> str:
        return f"{self.role} from {self.address}"


class Door:
    """Lets requests in; `hosts` are further names that the server is reached by. Sessions end by
    `clock`; what a client may ask goes by one that is never set, lest all have to wait."""

    def __init__(
        self,
        tokens: Tokens,
        host: str,
        port: int,
        hosts: Collection[str] = (),
        *,
        tls: bool = False,
        limits: Limits | None = None,
        ended: Path | None = None,
        clock: Callable[[], float] = _seconds,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self.tokens, self.tls, self.limits = tokens, tls, limits or Limits()
        self.sessions = Sessions(tokens, clock, ended)
        self._clients = Clients(self.limits, steady)
        self._names = {n.lower().rstrip(".") for n in (*LOOPBACK, host, *hosts)}
        self._any_address = _address(host) in (
            ipaddress.ip_address("0.0.0.0"),
            ipaddress.ip_address("::"),
        )
        # Cookies are shared by all ports of a host: two servers on one need two names.
        self.cookie = f"{'__Host-' if tls else ''}{_COOKIE}-{port}"

    def count(self, address: str) -> None:
        early = self._clients.request(address)
        if early:
            raise TooOften(
                early,
                ServerError(
                    "HR-SERVER-056",
                    f"more than {self.limits.rate:g} requests in a second",
                    "Ask less often; the header Retry-After says when to go on.",
                ),
            )

    def check_host(self, hosts: list[str]) -> None:
        """Refuse a request that names this machine in a way that nobody gave it."""
        name = _host_of(hosts[0]) if len(hosts) == 1 else None
        if name is not None and (name in self._names or self._fits_any(name)):
            return
        raise ServerError(
            "HR-SERVER-057",
            f"the server is not known as {', '.join(hosts)[:200]!r}",
            "Use the address that it printed at its start; its owner may add a name with "
            "`headrace server --name`.",
        )

    def _fits_any(self, name: str) -> bool:
        """0.0.0.0 means every address that this machine has; one cannot be pointed elsewhere."""
        return self._any_address and _address(name) is not None

    def check_origin(self, method: str, headers: Mapping[str, str], *, cookie: bool) -> None:
        """Refuse what the page of another site makes a browser send."""
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin is not None:
            own = _netloc(origin) is not None and _netloc(origin) == headers.get("host", "").lower()
        elif method in CHANGES_NOTHING:
            own = site not in ("cross-site", "same-site")
        else:  # a browser says where a request comes from: one with a cookie that does not is odd
            own = not cookie and site in ("none", "same-origin")
        if not own:
            raise ServerError(
                "HR-SERVER-058",
                f"a page of {origin or site!r} may not ask this server",
                "Only the server's own page may; programs send a token, and no Origin.",
            )

    def caller(self, headers: Mapping[str, str], cookies: list[str], address: str) -> Visitor:
        """Who asks, by the token or the cookie of the request."""
        given = headers.get("authorization")
        if given is None:
            for cookie in cookies:
                if (role := self.sessions.role_of(cookie)) is not None:
                    return Visitor(role, address)
            raise ServerError(
                "HR-SERVER-050",
                "the session has ended" if cookies else "a token is needed",
                "Send the header Authorization: Bearer TOKEN. The server's owner finds the "
                "tokens with `headrace server token --show`.",
            )
        kind, _, token = given.partition(" ")
        return Visitor(self.role(token.strip() if kind.lower() == "bearer" else given, address),
                      address)  # fmt: skip

    def role(self, token: str, address: str) -> str:
        """The role of a token; wrong ones are counted, and make the client wait."""
        wait = self._clients.waits(address)
        if wait:
            raise TooOften(
                wait,
                ServerError(
                    "HR-SERVER-055",
                    "too many wrong tokens came from this address",
                    f"Wait {math.ceil(wait)} s; then send the token in the file tokens.json of "
                    "the server's home.",
                ),
            )
        role = self.tokens.role_of(token) if len(token) <= LONGEST else None
        if role is None:
            self._clients.wrong(address, token)
            raise ServerError(
                "HR-SERVER-051",
                "the token is not one of this server",
                "It has two, one to read and one to operate: `headrace server token --show` "
                "prints them.",
            )
        return role

    def check_role(self, caller: Visitor, wanted: str) -> None:
        if not may(caller.role, wanted):
            raise ServerError(
                "HR-SERVER-052",
                f"this needs the role {wanted!r}, and the token has the role {caller.role!r}",
                f"Send the token of the role {wanted!r}.",
            )

    def session(self, token: str, address: str) -> tuple[str, str]:
        """The role of a token, and the header that sets a cookie for it."""
        role = self.role(token, address)
        return role, self._set(self.sessions.start(role), SESSION_SECONDS)

    def end(self, cookies: list[str]) -> str:
        """The header that takes the cookie away; it is worth nothing any more."""
        for cookie in cookies:
            self.sessions.end(cookie)
        return self._set("", 0)

    def cookies(self, header: str) -> list[str]:
        """Our cookie in a Cookie header."""
        try:
            found = SimpleCookie(header[:_MOST_HEADER]).get(self.cookie)
        except CookieError:
            return []
        return [found.value] if found is not None and found.value else []

    def _set(self, value: str, seconds: int) -> str:
        secure = "; Secure" if self.tls else ""
        return (
            f"{self.cookie}={value}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}"
        )


def is_loopback(host: str) -> bool:
    address = _address(host)
    return host.lower() == "localhost" or (address is not None and address.is_loopback)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return None


def _host_of(header: str) -> str | None:
    """The name in a Host header, without the port; None if it is none."""
    if not header or any(c in header for c in "/@?#\\ \t,"):
        return None
    try:
        parts = urlsplit(f"//{header}")
        _ = parts.port  # a number, or a ValueError
        name = parts.hostname
    except ValueError:
        return None
    return name.lower().rstrip(".") if name else None


def _netloc(origin: str) -> str | None:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or parts.path or parts.query or parts.fragment:
        return None
    return parts.netloc.lower() or None
