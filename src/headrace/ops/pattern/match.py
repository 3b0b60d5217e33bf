"""A match as a user's function sees it: rows by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


class Match(Mapping[str, list[Any]]):
    """The rows that were matched: `match["large"][-1].amount`; a name without rows is empty."""

    __slots__ = ("_found", "_names", "key", "pattern", "rows")

    def __init__(
        self, pattern: str, key: Any, names: Sequence[str], rows: Sequence[tuple[str, Any]]
    ) -> None:
        self.pattern, self.key = pattern, key
        self.rows = rows  # (name, row) in order
        self._names = names
        self._found: dict[str, list[Any]] | None = None

    def __getitem__(self, name: str) -> list[Any]:
        if self._found is None:
            self._found = {n: [] for n in self._names}
            for part, row in self.rows:
                self._found[part].append(row)
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"<Match {dict(self)}>"
