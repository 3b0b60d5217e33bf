"""Drivers for tests of outputs: they stage and publish epochs, crash, and are stopped and let go.

A crash is an exception that nobody catches, raised at each crash point in turn. Stopped means: at a
crash point, or right after a look at the fence that found it unchanged, the newer driver runs in
the place of the old one; then the old one goes on.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa

from headrace.errors import FencedError, HeadraceError
from headrace.schema import schema_of
from headrace.sinks import AT_LEAST_ONCE, EXACTLY_ONCE, EpochWriter, Output, Sink, open_sink
from headrace.state import faults

SCHEMA = schema_of("epoch bigint, n bigint, text string")
ALONE = EpochWriter(1, lambda: None)  # the only driver there is
JOB, NAME = "job", "o"  # of a case: its job folder in the test's, and the output's name
EPOCHS = 5
Row = tuple[Any, ...]


@dataclass
class OutputCase:
    """An output that can be opened again and again, and read by somebody else."""

    open: Callable[[], Sink]
    rows: Callable[[], list[Row]]
    """All rows that a reader of the place sees now, as sorted tuples of `SCHEMA`'s columns."""
    keyed: bool = False
    """Whether a row replaces an earlier one with the same `n`."""

    @staticmethod
    def of(
        output: str | Output, folder: Path, rows: Callable[[], list[Row]], **options: Any
    ) -> OutputCase:
        """The case of an output as `stream.write` takes it, in the test's folder."""
        job, keyed = str(folder / JOB), options.get("mode") == "upsert"
        return OutputCase(lambda: open_sink(output, SCHEMA, options, job, NAME), rows, keyed)


# Epochs of rows, and what they must be.


def made(sink: Sink) -> Sink:
    """The sink, once a start has checked and opened it."""
    sink.check()
    sink.open()
    return sink


def table(epoch: int, *numbers: int) -> pa.Table:
    rows = [{"epoch": epoch, "n": n, "text": f'é "{n}"'} for n in numbers]
    return pa.Table.from_pylist(rows, SCHEMA)


def copied(sink: Sink) -> Sink:
    """The sink as another process gets it."""
    copy: Sink = cloudpickle.loads(cloudpickle.dumps(sink))
    return copy


def stage(sink: Sink, epoch: int, tasks: int = 2, attempt: str = "a") -> list[dict[str, Any]]:
    """What the tasks of an epoch stage, as a manifest holds it; rows depend on the epoch only."""
    found = []
    for task in range(tasks):
        work = copied(sink)
        rows = table(epoch, *(100 * epoch + 10 * task + i for i in range(3)))
        found += work.stage(rows, epoch, f"{attempt}/{task}")
    staged: list[dict[str, Any]] = json.loads(json.dumps(found))
    return staged


def expected(epochs: int, tasks: int = 2) -> list[Row]:
    return sorted(
        (e, n, f'é "{n}"')
        for e in range(epochs)
        for t in range(tasks)
        for n in (100 * e + 10 * t + i for i in range(3))
    )


def agree(case: OutputCase, wanted: list[Row]) -> None:
    """Raise unless a reader sees each row once; or at least once, if that is the guarantee."""
    found = case.rows()
    if is_exact(case):
        assert sorted(found) == wanted
    else:
        assert sorted(set(found)) == wanted


def is_exact(case: OutputCase) -> bool:
    guarantee = case.open().guarantee
    assert guarantee in (EXACTLY_ONCE, AT_LEAST_ONCE)
    return guarantee == EXACTLY_ONCE


# A driver that crashes.


class SimulatedCrash(BaseException):
    pass


class CrashingDriver:
    """Runs a job's epochs against an output; crashes at the n-th crash point it passes.

    A reader looks after each epoch, from the crash on: up to there all is as in a run that
    does not crash, at which a reader looks from the beginning.
    """

    def __init__(self, case: OutputCase, crash_at: int | None) -> None:
        self._case, self._crash_at = case, crash_at
        self._exact = is_exact(case)
        self.passed: list[str] = []

    def run(self) -> None:
        manifests: dict[int, list[Any]] = {}
        published = -1
        with faults.hooked(self._pass):
            while published < EPOCHS - 1:
                try:
                    sink = made(self._case.open())
                    for epoch in range(published, EPOCHS):  # the last one again, as at a restart
                        if epoch >= 0:
                            if epoch not in manifests:
                                manifests[epoch] = stage(sink, epoch, attempt=str(len(self.passed)))
                            sink.publish(epoch, manifests[epoch], ALONE)
                            self._look(epoch)
                            published = epoch
                    sink.discard({r["file"] for m in manifests.values() for r in m})
                except SimulatedCrash:
                    self._look(published)

    def _pass(self, name: str) -> None:
        self.passed.append(name)
        if self._crash_at is not None and len(self.passed) == self._crash_at:
            raise SimulatedCrash(name)

    def _look(self, published: int) -> None:
        """A reader sees whole epochs, in order, at any moment."""
        as_without_crash = self._crash_at is not None and len(self.passed) < self._crash_at
        if self._exact and not as_without_crash:
            assert self._case.rows() in (expected(published + 1), expected(published + 2))


# Two drivers.


class SharedFolder:
    """What two drivers share: the fence, the manifests, and the output."""

    def __init__(self, case: OutputCase) -> None:
        self.case, self.fence = case, 0
        self.manifests: list[list[dict[str, Any]]] = []
        self.published = 0  # epochs that are known to be published

    def check(self, token: int) -> None:
        if token != self.fence:
            raise FencedError("HR-STATE-007", "another driver has taken the folder", "stop one")

    def agree(self) -> None:
        wanted = Counter(expected(len(self.manifests)))
        found = Counter(self.case.rows())
        assert found == wanted or (not is_exact(self.case) and set(found) == set(wanted))


def _nothing(name: str) -> None:
    """What happens at a point at which nobody is stopped."""


class Drive:
    def __init__(
        self, folder: SharedFolder, stop: Callable[[str], None] = lambda name: None
    ) -> None:
        self._folder, self._stop = folder, stop
        self.sink: Sink = folder.case.open()
        self.sink.check()
        folder.fence += 1
        self._token = folder.fence
        self.writer = EpochWriter(self._token, self._check)
        for epoch in range(folder.published, len(folder.manifests)):
            self._publish(epoch)
        self.sink.open()

    def _check(self) -> None:
        self._folder.check(self._token)
        self._stop("fence.checked")

    def run(self, epochs: int) -> None:
        for _ in range(epochs):
            epoch = len(self._folder.manifests)
            staged = stage(self.sink, epoch, attempt=f"{self._token}-{epoch}")
            self._folder.check(self._token)
            self._folder.manifests.append(staged)  # the manifest is linked
            self._publish(epoch)
            live = {r["file"] for m in self._folder.manifests for r in m}
            self.sink.discard(live, epoch)

    def _publish(self, epoch: int) -> None:
        self.sink.publish(epoch, self._folder.manifests[epoch], self.writer)
        self._folder.check(self._token)
        self._folder.published = max(self._folder.published, epoch + 1)


class Stopped:
    """Runs an old driver that is stopped at the n-th point while a newer one does `epochs`."""

    def __init__(
        self, folder: SharedFolder, at: int | None, epochs: int, old: int = EPOCHS
    ) -> None:
        self._folder, self._at, self._epochs, self._old = folder, at, epochs, old
        self.passed: list[str] = []
        self.newer: Drive | None = None
        self._busy = False

    def run(self) -> None:
        with faults.hooked(self._pass), suppress(HeadraceError):
            Drive(self._folder, self._pass).run(self._old)

    def _pass(self, name: str) -> None:
        if self._busy or self.newer is not None or name.startswith(("log.", "sql.")):
            return  # who is stopped with the log's lock keeps everybody out, the newer one too
        self.passed.append(name)
        if len(self.passed) == self._at:
            self._busy = True
            self.newer = Drive(self._folder)  # never stopped: an error here fails the test
            self.newer.run(self._epochs)
