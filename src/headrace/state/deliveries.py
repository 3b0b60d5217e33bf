"""Deliveries that have begun, of outputs that must not deliver an epoch twice.

    <folder>/begun/<n>.json    of the n-th driver: up to which epoch everything counts as begun, and
                               by output the last epoch whose delivery has begun, with its timeline;
                               or that it takes no notes, because it may deliver twice

It is durable before a row of that epoch leaves. After a crash such an epoch may be there in part
or whole, which nobody can know: at most once means that it is not delivered again. Each driver
has a file of its own, so one that was taken over cannot take back what the next has noted: the
newest counts, unless it is older than the newest manifest. Where none does every epoch counts as
begun; a damaged one is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headrace.state import sealed
from headrace.state.faults import point
from headrace.state.manifest import Manifest

BEGUN = "begun"
_FILE = re.compile(r"(\d+)\.json")
_NO_NOTES: dict[str, Any] = {"before": None, "outputs": None}
_MOST = 20  # epochs that are remembered as not delivered again, the newest


class BegunMark:
    """The file of a driver; without a token the newest there is, to be looked at."""

    def __init__(self, folder: str | Path, token: int | None = None) -> None:
        self._folder, self._token = Path(folder) / BEGUN, token
        self._content: dict[str, Any] | None = None

    def start(self, needed: bool, newest: Manifest | None) -> None:
        """Before a driver delivers anything: go on from the notes of the last one, or say that
        none are taken from now on."""
        older = self._tokens()
        if needed:
            stale = newest is not None and max(older, default=0) < newest.token
            self._write((None if stale else self._read()) or _all_until(newest))
        elif older:
            self._write(_NO_NOTES)
        with sealed.named_failures(self._folder):
            for token in older:
                if token != self._token:
                    self._path(token).unlink(missing_ok=True)

    def has(self, output: str, timeline: str, epoch: int, order: Sequence[str]) -> bool:
        """Whether the delivery of an epoch has begun; `order` has the timelines that count."""
        content = self._read()
        if content is None:
            return True
        places = (content["before"], content["outputs"].get(output))
        return any(
            (order.index(last["timeline"]), last["epoch"]) >= (order.index(timeline), epoch)
            for last in places
            if last is not None and last["timeline"] in order  # else it was given up
        )

    def begin(self, output: str, timeline: str, epoch: int) -> None:
        """From now on it counts as delivered, whatever happens."""
        passed = self._outputs().get(output, {}).get("passed", [])
        self._note(output, {"timeline": timeline, "epoch": epoch, "passed": passed})
        point("commit.begun")

    def passed_over(self, output: str, timeline: str, epoch: int) -> None:
        """An epoch that may be missing there, because it was not delivered again."""
        last = self._outputs().get(output, {"timeline": timeline, "epoch": epoch, "passed": []})
        if epoch not in last["passed"]:
            self._note(output, {**last, "passed": [*last["passed"], epoch][-_MOST:]})

    def missing(self, output: str) -> list[int]:
        """The epochs that may be missing at an output, the newest of them."""
        return list(self._outputs().get(output, {}).get("passed", []))

    @property
    def taken(self) -> bool:
        """Whether the driver of these notes was asked to deliver nothing twice."""
        return self._read() is not None

    def _outputs(self) -> Mapping[str, dict[str, Any]]:
        content = self._read()
        return content["outputs"] if content is not None else {}

    def _note(self, output: str, last: dict[str, Any]) -> None:
        content = self._read()
        if content is None:  # somebody has removed it: so much is known
            content = {"before": {n: last[n] for n in ("timeline", "epoch")}, "outputs": {}}
        self._write({**content, "outputs": content["outputs"] | {output: last}})

    def _read(self) -> dict[str, Any] | None:
        """What is noted; None if nothing is."""
        if self._content is None:
            tokens = self._tokens()
            newest = max(tokens, default=None) if self._token not in tokens else self._token
            if newest is not None:
                self._content = sealed.read_sealed(self._path(newest), BEGUN)
        return None if self._content == _NO_NOTES else self._content

    def _write(self, content: dict[str, Any]) -> None:
        sealed.make_folder(self._folder)
        assert self._token is not None
        sealed.rewrite_sealed(self._path(self._token), BEGUN, content)
        self._content = content

    def _tokens(self) -> list[int]:
        return sealed.numbered(self._folder, _FILE) if self._folder.is_dir() else []

    def _path(self, token: int) -> Path:
        return self._folder / f"{token}.json"


def _all_until(newest: Manifest | None) -> dict[str, Any]:
    """Of a job that was not asked for it before: whatever is committed may be delivered."""
    before = newest and {"timeline": newest.timeline, "epoch": newest.epoch}
    return {"before": before, "outputs": {}}
