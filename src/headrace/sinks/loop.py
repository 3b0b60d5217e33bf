"""What a component of a topology sends back to an earlier one, as an output of the job."""

from __future__ import annotations

from collections.abc import Set
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    EXACTLY_ONCE,
    Description,
    EpochWriter,
    HeldEpochs,
    OutputKind,
    OutputRequest,
    Reference,
    Sink,
    Timelines,
)
from headrace.sinks.durable import Staging, check_writable
from headrace.state.loops import LoopFolder

SCHEME = "loop"


class LoopSink(Sink):
    guarantee = EXACTLY_ONCE
    because = "in the job's folder, by epoch"
    loops = True

    def __init__(self, o: OutputRequest) -> None:
        self.schema, self._name, self._output = o.schema, o.rest, o.name
        self._loop, self._staging = LoopFolder(o.folder, o.rest), Staging(o.staged)

    def describe(self) -> Description:
        return {
            "kind": SCHEME,
            "place": self._name,
            "format": None,
            "options": {},
            "schema": packed(self.schema),
        }

    def check(self) -> None:
        check_writable(self._loop.path)

    def held(self) -> HeldEpochs:
        reached: dict[str, int] = {}
        for file in self._loop.files():
            reached[file.timeline] = file.epoch
        return HeldEpochs(max(reached.values(), default=0), reached, reached)

    def reached(self, epoch: int) -> bool:
        return self.held().number >= epoch

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        return self._staging.add(table.select(self.schema.names), epoch, unique)

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        if staged:
            rows = pa.concat_tables([self._staging.read(r) for r in staged])
            writer.check()
            self._loop.add(epoch, writer.timeline, rows)

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        beyond = timelines.beyond(self.held().all)
        first = min((timelines.upto(t) for t in beyond), default=None)
        rows = 0 if first is None else self._loop.go_back(first)
        return f"output {self._output!r}: {rows} rows that went round were taken back"

    def staged_at(self, reference: Reference) -> Path | None:
        return self._staging.at(reference)

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging.sweep(live, upto)


def _check(o: OutputRequest) -> None:
    """Only a topology makes one, which makes it right."""


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return about["place"], {}


LOOP = OutputKind(_check, LoopSink, _reopen)
