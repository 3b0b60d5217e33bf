"""How far publishing has come: a small file beside the manifests.

Publishing is idempotent, so the mark may be behind the truth after a crash, never ahead.
"""

from __future__ import annotations

import os
from pathlib import Path


class Published:
    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / "published"

    def epoch(self) -> int:
        """The last epoch known to be published; 0 if none is."""
        try:
            return int(self._path.read_text())
        except (FileNotFoundError, ValueError):
            return 0

    def reached(self, epoch: int) -> None:
        if epoch > self.epoch():
            temporary = self._path.with_suffix(f".{os.getpid()}.tmp")
            temporary.write_text(str(epoch))
            temporary.replace(self._path)
