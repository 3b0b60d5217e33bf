"""Deliveries that have begun, of outputs that must not deliver an epoch twice.

    <folder>/begun     by output: its timeline, and the last epoch whose delivery has begun

It is durable before a row of that epoch leaves. After a crash such an epoch may be there in part
or whole, which nobody can know: at most once means that it is not delivered again. Where the file
is missing every epoch counts as begun; a damaged one is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.state import sealed
from headrace.state.faults import point

BEGUN = "begun"
_MOST = 20  # epochs that are remembered as not delivered again, the newest


class BegunMark:
    """The file, read once and written by one driver at a time."""

    def __init__(self, folder: str | Path) -> None:
        self._path = Path(folder) / BEGUN
        self._outputs: dict[str, dict[str, Any]] | None = None

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def has(self, output: str, timeline: str, epoch: int, order: Sequence[str]) -> bool:
        """Whether the delivery of an epoch has begun; `order` has the timelines that count."""
        if not self.exists:
            return True
        last = self._read().get(output)
        if last is None or last["timeline"] not in order:
            return False  # none, or of a timeline that was given up
        reached = (order.index(last["timeline"]), last["epoch"])
        return reached >= (order.index(timeline), epoch)

    def begin(self, output: str, timeline: str, epoch: int) -> None:
        """From now on it counts as delivered, whatever happens."""
        outputs = dict(self._read() if self.exists else {})
        passed = outputs.get(output, {}).get("passed", [])
        self._write(outputs | {output: {"timeline": timeline, "epoch": epoch, "passed": passed}})
        point("commit.begun")

    def passed_over(self, output: str, timeline: str, epoch: int) -> None:
        """An epoch that may be missing there, because it was not delivered again."""
        outputs = dict(self._read() if self.exists else {})
        last = outputs.get(output, {"timeline": timeline, "epoch": epoch, "passed": []})
        passed = [*last["passed"], epoch][-_MOST:]
        self._write(outputs | {output: {**last, "passed": passed}})

    def missing(self, output: str) -> list[int]:
        """The epochs that may be missing at an output, the newest of them."""
        found = self._read().get(output) if self.exists else None
        return list(found["passed"]) if found else []

    def start(self, needed: bool) -> None:
        """At the start of a run: there if it is needed, and not there if it would go stale."""
        if needed and not self.exists:
            self._write({})
        if not needed and self.exists:
            with sealed.named_failures(self._path):
                self._path.unlink()
            self._outputs = None

    def _read(self) -> Mapping[str, dict[str, Any]]:
        if self._outputs is None:
            self._outputs = sealed.read_sealed(self._path, BEGUN)["outputs"]
        return self._outputs

    def _write(self, outputs: dict[str, dict[str, Any]]) -> None:
        sealed.rewrite_sealed(self._path, BEGUN, {"outputs": outputs})
        self._outputs = outputs
