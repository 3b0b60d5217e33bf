"""The short form of `make logstress`, and whether it would notice."""

from __future__ import annotations

import errno
import os
import resource

import pytest
from stress.damage import damage
from stress.journal import PARTITIONS, Journal, compare, contents, read_notes
from stress.kills import append, kills
from stress.power import power

from headrace.errors import LogError
from headrace.log import EmbeddedLog, writer
from headrace.state import faults

pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def test_kills_and_errors_lose_double_and_halve_nothing(folder, tmp_path):
    found = kills(folder, tmp_path, 3, 8, seed=11)
    assert found.violations == []
    assert found.records


def test_damage_to_any_file_is_an_error_or_does_no_harm(folder):
    found = damage(folder, 1, seed=3)
    assert found.violations == []


def test_power_cuts_lose_nothing_acknowledged(folder):
    found = power(folder, 25, seed=5)
    assert found.violations == []
    assert found.faults == 75


def test_power_cuts_are_noticed_where_nothing_is_synced(folder, monkeypatch):
    class Forgetful:
        def __getattr__(self, name):
            return getattr(writer_disk, name)

        def sync(self, fd):
            pass

    writer_disk = writer.disk
    monkeypatch.setattr(writer, "disk", Forgetful())
    assert power(folder, 5, seed=5).violations


STEPS = ["log.write", "log.sync", "log.sync_folder", "log.cut", "log.remove", "log.rename"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_an_error_at_every_durable_step_in_turn_loses_nothing(folder, step, number):
    """The n-th passing of a step fails, for every n; half of the appends are retried."""
    (folder / "notes").mkdir()
    journal, log = Journal(folder / "notes", "a"), EmbeddedLog(folder / "log")
    log.create("t", PARTITIONS, segment_bytes=1_500, retention_bytes=10**9)
    from random import Random

    chance, at = Random(1), 0
    for nth in range(1, 12):
        passed = []

        def hook(name, nth=nth, passed=passed):
            passed.append(name)
            if passed.count(step) == nth and name == step:
                raise OSError(number, os.strerror(number))

        with faults.hooked(hook):
            for _ in range(6):
                append(log, journal, at, chance)
                at += 1
    found = compare(read_notes(folder / "notes"), contents(EmbeddedLog(folder / "log")))
    assert found.violations == []
    assert found.records > 100


def test_a_limit_on_the_size_of_files_is_like_a_full_disk(folder):
    """What a user without rights can have: the system itself refuses to write."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import signal

            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            log = EmbeddedLog(folder / "log")
            log.create("t", 2)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
            acked = refused = 0
            while refused < 5:
                try:
                    log.append("t", [b"x" * 500] * 4)
                    acked += 2
                except LogError as error:
                    assert error.code == "HR-LOG-010"
                    refused += 1
            assert EmbeddedLog(folder / "log").latest("t") == {0: acked, 1: acked}
            code = 0 if acked > 10 else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    log = EmbeddedLog(folder / "log")
    before = log.latest("t")
    log.append("t", [b"more"] * 2)
    assert log.latest("t") == {p: end + 1 for p, end in before.items()}
