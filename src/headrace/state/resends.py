"""Requests to send dead letters again: numbered files in a job's folder, each with its letters.

    <folder>/resends/<n>.json      the n-th request: the letters as they were when it was made

A request is written once, whole, and is never changed. It is done when a manifest names it, which
is the manifest of the epoch in which its letters were sent again; the next one waits till then. One
that was made before the job went back to an earlier epoch is void: its letters are asked for anew.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.spare_bytes import without_spare
from headrace.state import sealed
from headrace.state.manifest import Manifest

FOLDER = "resends"
_NUMBER = re.compile(r"(\d{12})\.json")
_KIND = "resend"


class Resends:
    """The requests in one job's folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder) / FOLDER
        self._timelines: dict[int, str] = {}  # on which each was made: files never change

    def numbers(self) -> list[int]:
        return sealed.numbered(self._folder, _NUMBER) if self._folder.is_dir() else []

    def waiting(self, manifest: Manifest) -> list[int]:
        """The requests that are still to be done, the oldest first."""
        done = _last_done(manifest)
        return [n for n in self.numbers() if n > done and self._timeline(n) == manifest.timeline]

    def next(self, manifest: Manifest) -> int | None:
        """The request that comes next; None if there is none."""
        return next(iter(self.waiting(manifest)), None)

    def free(self, manifest: Manifest) -> int:
        """The number of the next request to be made."""
        return 1 + max([_last_done(manifest), *self.numbers()])

    def read(self, number: int) -> pa.Table:
        """The letters of a request."""
        content = self._content(number)
        return pa.ipc.open_stream(base64.b64decode(content["letters"])).read_all()

    def make(self, number: int, letters: pa.Table, manifest: Manifest, now: int) -> bool:
        """Durably ask for `letters`; False if somebody else has made a request of this number."""
        sealed.make_folder(self._folder)
        content = {"timeline": manifest.timeline, "asked": now, "letters": _packed(letters)}
        return sealed.create_sealed(self.path(number), _KIND, content)

    def rewrite(self, number: int, letters: pa.Table) -> None:
        """Durably give a request other letters; only while nobody drives the job."""
        content = {**self._content(number), "letters": _packed(letters)}
        sealed.rewrite_sealed(self.path(number), _KIND, content)

    def _timeline(self, number: int) -> str:
        if number not in self._timelines:
            self._timelines[number] = self._content(number)["timeline"]
        return self._timelines[number]

    def _content(self, number: int) -> dict[str, Any]:
        return sealed.read_sealed(self.path(number), _KIND)

    def path(self, number: int) -> Path:
        return self._folder / f"{number:012d}.json"


def _packed(letters: pa.Table) -> str:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, letters.schema) as writer:
        writer.write_table(without_spare(letters))  # a request may be a part of what was chosen
    return base64.b64encode(stream.getvalue().to_pybytes()).decode()


def _last_done(manifest: Manifest) -> int:
    return max((number for number, _ in manifest.resent or ()), default=0)
