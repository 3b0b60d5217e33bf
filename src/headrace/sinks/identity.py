"""What tells a job's folder from every other, in the records of its outputs.

Kept in the folder, and made when it is first needed: when a job starts, not when somebody
looks at its outputs. Every process of the job finds the same.
"""

from __future__ import annotations

import uuid
from pathlib import Path

from headrace.sinks.durable import folder_for, named
from headrace.state.sealed import create_sealed, read_sealed

_KIND = "job-identity"


class Identity:
    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "outputs" / "identity"
        self._found: str | None = None

    def known(self) -> str | None:
        """The identity, if there is one yet."""
        if self._found is None:
            with named(self.path):
                if self.path.exists():
                    self._found = str(read_sealed(self.path, _KIND)["id"])
        return self._found

    def get(self) -> str:
        """The identity, made if there is none; of two who make one, the first is right."""
        known = self.known()
        if known is None:
            folder_for(self.path.parent)
            with named(self.path):
                create_sealed(self.path, _KIND, {"id": uuid.uuid4().hex})
            return self.get()
        return known
