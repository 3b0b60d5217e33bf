"""How far publishing has come: a small file beside the manifests.

Publishing is idempotent, so the mark may be behind the truth after a crash, never ahead. One
that is damaged says nothing, and everything that manifests name is published again.
"""

from __future__ import annotations

from pathlib import Path

from headrace.errors import StateError
from headrace.state.sealed import read_sealed, replace_sealed

_KIND = "published"


class Published:
    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "published"

    def epoch(self) -> int:
        """The last epoch known to be published; 0 if none is."""
        try:
            return int(read_sealed(self._path, _KIND)["epoch"])
        except StateError as error:
            if error.code == "HR-STATE-006":  # it cannot be read, whatever it holds
                raise
            return 0

    def reached(self, epoch: int) -> None:
        if epoch > self.epoch():
            replace_sealed(self._path, _KIND, {"epoch": epoch})
