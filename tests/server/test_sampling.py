"""Figures once a second: a manifest is read only when there is another, a broken folder stops
nobody, and what is shown is also what is stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.clock import ManualClock
from headrace.inspect.figure_values import Figures
from headrace.inspect.recent import Recent
from headrace.server.daemon import Daemon
from headrace.server.lifecycle import State
from headrace.server.prometheus import metrics_of
from headrace.server.records import JobRecord
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest


class Job:
    """The folder of a job, with manifests that a test writes."""

    def __init__(self, daemon: Daemon, folder: Path, state: State) -> None:
        self.log = EpochLog(folder)
        self.log.open("j", 8)
        self.token, self.clock = self.log.take_fence(), daemon.parts.desk.clock
        record = JobRecord(
            name=folder.name, program="/p.py", folder=str(folder), since=0, state=state
        )
        daemon.parts.desk.put(record)

    def commit(self, epoch: int, read: int) -> None:
        counts = {"in": {"read": read, "used": read, "filtered": 0, "late": 0, "dead": 0}}
        now = self.clock.now()
        manifest = Manifest(epoch, self.token, str(epoch), "j", now - 100, now, counts=counts)
        self.log.commit(replace(manifest, lag=7))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def daemon(tmp_path: Path, clock: ManualClock) -> Iterator[Daemon]:
    made = Daemon(tmp_path / "home", clock=clock)
    yield made
    made._store.close()
    made.home.release()


def test_figures_are_shown_and_stored(daemon: Daemon, tmp_path: Path, clock: Any) -> None:
    job = Job(daemon, tmp_path / "shop", State.RUNNING)
    sampling, service = daemon.parts.sampling, daemon.service
    sampling.sample()
    assert service.job("shop").figures is None and service.job("shop").job.epoch == 0
    job.commit(1, 100)
    sampling.sample()
    clock.advance(10_000)
    job.commit(2, 600)
    sampling.sample()
    figures = service.job("shop").figures
    assert figures is not None and figures["totals"]["read"] == 600
    seen = service.job("shop").job
    assert (seen.epoch, seen.rate_in, seen.lag_rows) == (2, 50.0, 7) == (
        figures["epoch"], figures["rate_in"], figures["lag_rows"],
    )  # fmt: skip
    series = service.series("shop", names=["totals.read", "rate_in"])
    assert series.times == (1_000_000, 1_010_000)
    assert series.series["totals.read"] == (100.0, 600.0)
    assert service.figures()["shop"] == figures


@pytest.mark.parametrize("state", [State.INACTIVE, State.KILLED, State.WAITING])
def test_a_job_without_a_process_has_counts_and_no_rates(
    daemon: Daemon, tmp_path: Path, clock: Any, state: State
) -> None:
    job = Job(daemon, tmp_path / "shop", State.RUNNING)
    sampling, service, desk = daemon.parts.sampling, daemon.service, daemon.parts.desk
    job.commit(1, 100)
    sampling.sample()
    clock.advance(10_000)
    job.commit(2, 600)
    sampling.sample()
    assert service.job("shop").job.rate_in == 50.0
    desk.put(replace(desk.record("shop"), state=state))
    for _ in range(2):
        sampling.sample()
        seen = service.job("shop")
        assert seen.figures is not None and seen.figures["totals"]["read"] == 600
        view = seen.job
        assert (view.epoch, view.lag_rows) == (2, 7)
        assert view.rate_in is view.capacity is view.watermark_delay is view.latency_p95 is None
        assert all(one["rate"] is None for one in seen.figures["inputs"])
    desk.put(replace(desk.record("shop"), state=State.RUNNING))
    sampling.sample()
    clock.advance(10_000)
    job.commit(3, 1_600)
    sampling.sample()
    assert service.job("shop").job.rate_in == 100.0


def test_a_manifest_is_read_only_when_there_is_another(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(daemon, tmp_path / "shop", State.RUNNING)
    job.commit(1, 100)
    read, real = list[int](), EpochLog.read
    monkeypatch.setattr(EpochLog, "read", lambda log, epoch: read.append(epoch) or real(log, epoch))
    for _ in range(5):
        daemon.parts.sampling.sample()
    job.commit(2, 200)
    for _ in range(5):
        daemon.parts.sampling.sample()
    assert read == [1, 2]


def test_of_a_job_at_rest_nothing_is_stored(daemon: Daemon, tmp_path: Path) -> None:
    Job(daemon, tmp_path / "shop", State.INACTIVE).commit(1, 100)
    daemon.parts.sampling.sample()
    daemon.parts.sampling.sample()
    figures = daemon.service.job("shop").figures
    assert figures is not None and figures["totals"]["read"] == 100
    assert daemon.service.series("shop").times == ()


def test_a_folder_that_is_damaged_has_no_figures_and_stops_nobody(
    daemon: Daemon, tmp_path: Path
) -> None:
    for name in ("broken", "whole"):
        Job(daemon, tmp_path / name, State.RUNNING).commit(1, 100)
    (manifest,) = (tmp_path / "broken" / "epochs").iterdir()
    manifest.write_text("no manifest")
    daemon.parts.sampling.sample()
    assert daemon.service.job("broken").figures is None
    assert daemon.service.job("whole").figures is not None
    assert [job.name for job in daemon.service.jobs()] == ["broken", "whole"]


def test_a_job_that_has_stopped_has_counts_and_no_rates(
    daemon: Daemon, tmp_path: Path, clock: ManualClock
) -> None:
    job = Job(daemon, tmp_path / "shop", State.RUNNING)
    desk, sampling = daemon.parts.desk, daemon.parts.sampling
    for epoch in (1, 2):
        job.commit(epoch, 500 * epoch)
        sampling.sample()
        clock.advance(1_000)
    running = sampling.of("shop")
    assert running is not None and running.rate_in == 500
    desk.put(replace(desk.record("shop"), state=State.INACTIVE))
    for _ in range(3):
        sampling.sample()
        clock.advance(3_600_000)
        stopped = sampling.of("shop")
        assert stopped is not None and stopped.totals["read"] == 1_000
        assert stopped.rate_in is None and stopped.capacity is None and stopped.time == 1_001_000
        assert "records_per_second{" not in metrics_of(
            daemon.service.jobs(), daemon.service.figures()
        )


def test_a_folder_that_was_replaced_has_its_own_figures_whatever_its_epoch(
    daemon: Daemon, tmp_path: Path, clock: ManualClock
) -> None:
    folder = tmp_path / "shop"
    Job(daemon, folder, State.RUNNING).commit(1, 9_000)
    recent = Recent(folder)
    daemon.parts.sampling.sample()
    assert _read(recent.look(clock.now())) == _read(daemon.parts.sampling.of("shop")) == 9_000
    folder.rename(tmp_path / "before")
    clock.advance(1_000)
    Job(daemon, folder, State.RUNNING).commit(1, 40)
    daemon.parts.sampling.sample()
    seen = daemon.parts.sampling.of("shop")
    assert _read(recent.look(clock.now())) == _read(seen) == 40
    assert seen is not None and seen.rate_in is None


def _read(figures: Figures | None) -> int:
    assert figures is not None
    return figures.totals["read"]
