"""A driver that is stopped anywhere and let go after another took over changes nothing.

Stopped means: at a crash point, or right after a look at the fence that found it unchanged, the
worst moment there is, the newer driver runs in its place; then the old one goes on. With
HEADRACE_LONG=1 it is stopped at every point, else at every fourth.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.sinks.writing import EVERY, Output, expected, files, stage

from headrace.errors import FencedError, HeadraceError
from headrace.sinks import EpochWriter, Sink, merging, output_files
from headrace.state import faults

OLD_EPOCHS = 5


class Folder:
    """What two drivers share: the fence, the manifests, and the output."""

    def __init__(self, output: Output) -> None:
        self.output, self.fence = output, 0
        self.manifests: list[list[dict[str, Any]]] = []
        self.published = 0  # epochs that are known to be published

    def check(self, token: int) -> None:
        if token != self.fence:
            raise FencedError("HR-STATE-007", "another driver has taken the folder", "stop one")


class Drive:
    def __init__(self, folder: Folder, stop: Callable[[str], None] = lambda name: None) -> None:
        self._folder, self._stop = folder, stop
        self.sink: Sink = folder.output.open()
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

    def __init__(self, folder: Folder, at: int | None, epochs: int) -> None:
        self._folder, self._at, self._epochs = folder, at, epochs
        self.passed: list[str] = []
        self.newer: Drive | None = None
        self._busy = False

    def run(self) -> None:
        with faults.hooked(self._pass), suppress(HeadraceError):
            Drive(self._folder, self._pass).run(OLD_EPOCHS)

    def _pass(self, name: str) -> None:
        if self._busy or self.newer is not None or name.startswith("log."):
            return  # who is stopped with the log's lock keeps everybody out, the newer one too
        self.passed.append(name)
        if len(self.passed) == self._at:
            self._busy = True
            self.newer = Drive(self._folder)  # never stopped: an error here fails the test
            self.newer.run(self._epochs)


def agree(output: Output, folder: Folder, kind: str) -> None:
    wanted = Counter(expected(len(folder.manifests)))
    found = Counter(output.rows())
    if kind == "console":  # at least once
        assert set(found) == set(wanted)
    else:
        assert found == wanted


def points(kind: str, place: Path) -> list[str]:
    calm = Stopped(Folder(EVERY[kind](place)), None, 0)
    calm.run()
    return calm.passed


@pytest.mark.parametrize("epochs", [0, 1, 5])
@pytest.mark.parametrize("kind", sorted(EVERY))
def test_a_driver_stopped_anywhere_and_let_go_later_changes_nothing(
    tmp_path_factory, eager, hasty, kind, epochs
):
    names = points(kind, tmp_path_factory.mktemp("calm"))
    assert len(names) > 3 * OLD_EPOCHS
    every = 1 if os.environ.get("HEADRACE_LONG") else 4  # of the points, in the default run
    for at in range(1 + epochs % every, len(names) + 1, every):
        place = tmp_path_factory.mktemp("two")
        folder = Folder(EVERY[kind](place))
        pair = Stopped(folder, at, epochs)
        pair.run()
        assert pair.newer is not None
        agree(folder.output, folder, kind)
        pair.newer.run(4)  # it goes on as if nothing had been
        agree(folder.output, folder, kind)
        Drive(folder).run(1)
        agree(folder.output, folder, kind)
        if (place / "out").is_dir():
            nothing_is_left_over(place / "out")


def nothing_is_left_over(out: Path) -> None:
    """What a reader that globs sees is what counts, and nothing is hidden for ever."""
    shown = {p.name for p in out.iterdir() if p.name[0] not in "._"}
    assert shown == {p.name for p in output_files(out)}
    assert not list(out.glob("_staging/*/merged-*"))
    sidecars = {p.name.removesuffix(".rows") for p in out.glob("_commits/*.rows")}
    assert sidecars == {name for name in shown if name.startswith("merged-")}


@pytest.mark.parametrize("epochs", [0, 1, 17])
def test_so_it_is_with_the_real_numbers(tmp_path_factory, hasty, monkeypatch, epochs):
    monkeypatch.setattr("tests.sinks.test_two_drivers.OLD_EPOCHS", merging.EVERY + 1)
    names = points("parquet", tmp_path_factory.mktemp("calm"))
    first = names.index("sink.merge.written")
    assert "sink.merge.renamed" in names
    for at in range(first - 3, len(names) + 1, 4):
        place = tmp_path_factory.mktemp("two")
        folder = Folder(files(place))
        pair = Stopped(folder, at, epochs)
        pair.run()
        assert pair.newer is not None
        agree(folder.output, folder, "parquet")
