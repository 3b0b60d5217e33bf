"""Who may ask the server: two tokens, one for each role, and cookies that stand for them.

`read` may look at everything; `operate` may also start, stop and change jobs. Tokens are compared
by their hashes, in constant time and each with all. A cookie is a signed text, so that an open page
goes on when the server is started again; it ends with its time, when it is ended
(`ended_sessions.py`), or when the token is changed.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import stat
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from headrace.errors import ServerError
from headrace.server.ended_sessions import EndedSessions
from headrace.state.sealed import make_folder

READ, OPERATE = "read", "operate"
ROLES = (READ, OPERATE)
SHORTEST = 16  # characters of a token
LONGEST = 1_000
SESSION_SECONDS = 12 * 3600


def may(role: str, wanted: str) -> bool:
    """Whether a role is enough for what needs `wanted`."""
    return ROLES.index(role) >= ROLES.index(wanted)


class Tokens:
    """The tokens of a server, by role; only their hashes are held."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        for role, token in tokens.items():
            if role not in ROLES or not SHORTEST <= len(token) <= LONGEST or not _plain(token):
                raise ServerError(
                    "HR-SERVER-071",
                    f"the token of the role {role!r} cannot be one",
                    f"The roles are read and operate; a token has {SHORTEST} to {LONGEST} "
                    "visible characters of ASCII. Without the file, good ones are generated.",
                )
        if len(set(tokens.values())) < len(ROLES) or set(tokens) != set(ROLES):
            raise ServerError(
                "HR-SERVER-072",
                "the server needs two tokens that differ, for the roles read and operate",
                "Remove the file of tokens: two are generated at the next start.",
            )
        self._hashes = {role: _hash(tokens[role]) for role in ROLES}
        keys = {r: hmac.digest(tokens[r].encode(), b"headrace session", "sha256") for r in ROLES}
        self._keys = keys

    def role_of(self, token: str) -> str | None:
        """The role of a token; every one is compared, whatever the first says."""
        given, found = _hash(token), None
        for role, known in self._hashes.items():
            if hmac.compare_digest(given, known):
                found = role
        return found

    def signature(self, role: str, text: str) -> str:
        return hmac.new(self._keys[role], text.encode(), "sha256").hexdigest()


class Sessions:
    """Cookies for the page: `role.end.id.signature`."""

    def __init__(self, tokens: Tokens, now: Callable[[], float], ended: Path | None = None) -> None:
        """`ended`: the file of those that were ended before their time."""
        self._tokens, self._now = tokens, now
        self._ended = EndedSessions(ended, now)
        self._lock = threading.Lock()

    def start(self, role: str) -> str:
        text = f"{role}.{int(self._now()) + SESSION_SECONDS}.{secrets.token_urlsafe(16)}"
        return f"{text}.{self._tokens.signature(role, text)}"

    def role_of(self, cookie: str) -> str | None:
        """The role of a cookie that we made, has not ended, and was not ended."""
        parts = cookie.split(".")
        if len(parts) != 4 or parts[0] not in ROLES or not cookie.isascii():
            return None
        role, end, id, signature = parts
        signed = self._tokens.signature(role, f"{role}.{end}.{id}")
        if not hmac.compare_digest(signature.encode(), signed.encode()):
            return None
        with self._lock:
            begun = int(end) - SESSION_SECONDS
            lasts = int(end) > self._now() and begun >= int(self._ended.begun_after)
            return role if lasts and id not in self._ended else None

    def end(self, cookie: str) -> None:
        if self.role_of(cookie) is None:
            return
        _, end, id, _ = cookie.split(".")
        with self._lock:
            self._ended.add(id, int(end))


def load_tokens(path: Path) -> dict[str, str]:
    """The tokens in a file, by role; made at the first start, for its owner alone."""
    make_folder(path.parent)
    made = {role: secrets.token_urlsafe(32) for role in ROLES}
    new = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            json.dump(made, file, indent=2)
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(new, path)  # whole or not at all, and never over one that is there
        except FileExistsError:
            return read_tokens(path)
    finally:
        os.unlink(new)
    return made


def read_tokens(path: Path) -> dict[str, str]:
    """The tokens in a file that only its owner may read."""
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise ServerError(
                "HR-SERVER-073",
                f"others may read the tokens in {str(path)!r}",
                f"chmod 600 {path}; or remove it: others are generated at the next start.",
            )
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and all(isinstance(t, str) for t in found.values()):
            return found
        reason = "it is no object of texts"
    except (OSError, ValueError) as error:
        reason = str(error)
    raise ServerError(
        "HR-SERVER-074",
        f"the tokens in {str(path)!r} cannot be read: {reason}",
        'Write {"read": "...", "operate": "..."}; or remove it: others are generated at the '
        "next start.",
    )


def _hash(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "backslashreplace")).digest()


def _plain(token: str) -> bool:
    return token.isascii() and token.isprintable() and " " not in token
