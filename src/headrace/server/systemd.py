"""The systemd unit of a server: a service of the system or of a user, hardened where jobs allow.

`KillMode=process`: only the server is ended when the service is stopped or started again; the jobs
go on, and the next start finds them. For the same reason `/tmp` is not private: it would be taken
away from jobs that outlive the service. A JVM compiles while it runs, so memory may be executable.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ServerError

NAME = "headrace.service"
_PLACES = {"user": Path("~/.config/systemd/user"), "system": Path("/etc/systemd/system")}
_HARDENED = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
"""
_SYSTEM_ONLY = """\
ProtectSystem=full
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
PrivateDevices=yes
RestrictNamespaces=yes
CapabilityBoundingSet=
"""


@dataclass(frozen=True, slots=True)
class ServiceUnit:
    """What a unit says."""

    command: Sequence[str]
    folder: Path  # where jobs run
    scope: str  # "user" or "system"
    user: str | None = None  # that a service of the system runs as

    @property
    def text(self) -> str:
        system = self.scope == "system"
        who = f"User={_quoted(self.user)}\n" if system and self.user else ""
        return (
            "[Unit]\n"
            f"Description=Headrace, the server of the jobs in {_line(str(self.folder))}\n"
            "Documentation=man:systemd.service(5)\n"
            "After=network-online.target\n"
            "Wants=network-online.target\n"
            "\n"
            "[Service]\n"
            "Type=exec\n"
            f"{who}"
            f"WorkingDirectory={_line(str(self.folder))}\n"
            f"ExecStart={' '.join(map(_quoted, self.command))}\n"
            "Restart=always\n"
            "RestartSec=2\n"
            "KillMode=process\n"
            "TimeoutStopSec=60\n"
            "UMask=0077\n"
            f"{_HARDENED}{_SYSTEM_ONLY if system else ''}"
            "\n"
            "[Install]\n"
            f"WantedBy={'multi-user.target' if system else 'default.target'}\n"
        )

    @property
    def path(self) -> Path:
        """Where systemd looks for it."""
        return _PLACES[self.scope].expanduser() / NAME

    def write(self) -> Path:
        """Put it there; one that says something else is not replaced."""
        path = self.path
        if path.exists() and path.read_text(encoding="utf-8") != self.text:
            raise ServerError(
                "HR-SERVER-026",
                f"there is another unit in {str(path)!r}",
                "Remove it first; --print shows what would be written.",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.text, encoding="utf-8")
        except OSError as error:
            raise ServerError(
                "HR-SERVER-027",
                f"{str(path)!r} cannot be written: {error.strerror}",
                "A service of the system is installed by root; --user installs one of your own.",
            ) from error
        return path


def _line(text: str) -> str:
    """A text on a line of its own, where systemd expands %."""
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise ServerError(
            "HR-SERVER-028",
            f"{text!r} cannot be written into a unit of systemd",
            "Use a folder whose name has no line breaks.",
        )
    return text.replace("%", "%%")


def _quoted(text: str) -> str:
    """A word of a command, as systemd reads it."""
    safe = _line(text).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{safe}"' if re.search(r"[^\w./:@=+,%-]", safe) or not safe else safe
