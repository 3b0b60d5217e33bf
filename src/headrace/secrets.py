"""Secrets in the arguments of inputs and outputs: never printed, never stored.

A password in a place, as in "sql:postgresql://me:secret@host/db", or in an option leaves the text
before anything else sees it, and travels on as a `Secret`, whose text is asked for where it is
used. Everything else (names, messages, `explain`, what is at rest) has the place without it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

PASSWORD = "password"
_AUTHORITY = re.compile(r"(?P<head>[^/?#]*://)(?P<user>[^/?#:]*):(?P<secret>[^/?#]*)@")
_PARAMETER = re.compile(r"(?P<lead>[?&])password=(?P<secret>[^&#]*)&?")
_HIDDEN = "***"
_PATHS = ("files", "log", "collect", "console", "sql:sqlite", "sql:duckdb")  # "?" and "@" are names
_WORDS = re.compile(
    r"pass(word|wd|phrase)|pwd|secret|token|credential|signature|^(sig|key|auth|jwt)$|"
    r"(api|access|account|client|server|private)_?key"
)
_USER = re.compile(r"[^/?#@]*:[^/?#@]*@|[^/?#:@]*:(?!\d+(?:[/?#,]|$))[^@]*@")


class Secret:
    """A text that is shown as ***."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return _HIDDEN

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def without_secrets(uri: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The place without a password, and the options with it as a `Secret`."""
    found = dict(options)
    if isinstance(found.get(PASSWORD), str):
        found[PASSWORD] = Secret(found[PASSWORD])
    if not isinstance(uri, str):
        return uri, found
    if match := _AUTHORITY.search(uri):
        found[PASSWORD] = Secret(unquote(match["secret"]))
        uri = f"{uri[: match.start()]}{match['head']}{match['user']}@{uri[match.end() :]}"
    if match := _PARAMETER.search(uri):
        found[PASSWORD] = Secret(unquote(match["secret"]))
        rest = uri[match.end() :]
        uri = uri[: match.start()] + (match["lead"] + rest if rest else "")
    return uri, found


def exposed(uri: str) -> str | None:
    """What in a place, of which nothing was left out, is a secret: in words that do not show it.

    A place is stored and shown; a secret that is written there in another way than
    `without_secrets` knows would be, too.
    """
    scheme, _, rest = uri.partition(":")
    is_address = "://" in rest or rest.startswith("//")
    if uri.startswith(_PATHS) or (scheme == "delta" and not is_address):
        return None
    authority = rest.rpartition("://")[2] if is_address else rest
    if _USER.match(authority.removeprefix("//")):
        return "a user with a password"
    for setting in re.split("[&;]", uri.partition("?")[2]):
        name = unquote(setting.partition("=")[0])
        if _WORDS.search(name.lower().replace("-", "_")):
            return f"{name}="
    return None


def hidden(text: str, secret: Secret | None) -> str:
    """A library's message without the secret."""
    if secret is None or not secret.text:
        return text
    return text.replace(secret.text, _HIDDEN)
