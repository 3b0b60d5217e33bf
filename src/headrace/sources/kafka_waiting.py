"""What an input waits for, in a file of the job's folder: whoever watches the job reads it there.

The processes that read are not the one that reports. A file that cannot be written is no reason to
stop: the job goes on waiting.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_FILE = "waiting"


class WaitNote:
    def __init__(self, home: Path | None) -> None:
        self._path = None if home is None else home / _FILE
        self._said: bool | None = None  # unknown: a run before this one may have waited

    def say(self, text: str | None) -> None:
        """The job waits for this; None: it goes on."""
        if self._path is None or (text is None and self._said is False):
            return
        with suppress(OSError):
            if text is None:
                self._path.unlink(missing_ok=True)
            else:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(text, encoding="utf-8")
        self._said = text is not None

    def text(self) -> str | None:
        """What is waited for now."""
        if self._path is None:
            return None
        try:
            return self._path.read_text(encoding="utf-8") or None
        except OSError:
            return None
