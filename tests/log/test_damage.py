"""Damage: torn tails, flipped bits, missing pieces. A named error or the right answer, never else.

A tail is torn when an append that nobody acknowledged was cut short. Anything wrong with what
was acknowledged is an error that names the file, and nothing is thrown away.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.errors import LogError
from headrace.log import EmbeddedLog, head, topic
from headrace.log.segment import index_path
from headrace.state import faults


class Crash(BaseException):
    pass


def crash_at(name):
    def hook(passed):
        if passed == name:
            raise Crash

    return faults.hooked(hook)


def crash_in_append(log, records, at="log.written", **options):
    with crash_at(at), pytest.raises(Crash):
        log.append("t", records, **options)


def segment(log, number=0) -> Path:
    return sorted((log.root / "t").glob("*.log"))[number]


def values(log, start=0, end=None):
    return [v for _, t in log.read("t", 0, start, end) for v in t["value"].to_pylist()]


def flip(path: Path, byte: int, bit: int = 0) -> None:
    with path.open("r+b", buffering=0) as file:
        file.seek(byte)
        [old] = file.read(1)
        file.seek(byte)
        file.write(bytes([old ^ 1 << bit]))


@pytest.fixture
def log(embedded) -> EmbeddedLog:
    embedded.create("t")
    return embedded


@pytest.fixture
def restart(monkeypatch):
    """Make heads written so far those of an earlier boot."""
    boots = iter(range(1, 1_000_000))

    def restart() -> None:
        boot = next(boots).to_bytes(16, "little")
        monkeypatch.setattr(head, "boot_id", lambda: boot)

    return restart


def torn(log, cut: int) -> EmbeddedLog:
    """The same log with only `cut` bytes of the last, unacknowledged append on disk."""
    copy = log.root.parent / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(log.root, copy)
    copied = EmbeddedLog(copy, log._clock)
    os.truncate(segment(copied), cut)
    return copied


@pytest.mark.parametrize("restarted", [False, True])
def test_a_tail_torn_at_any_byte_is_ignored_and_then_cut(log, restart, restarted):
    log.append("t", [b"one", b"two"])
    acknowledged = segment(log).stat().st_size
    crash_in_append(log, [b"three", b"four"], producer="p", sequence=1)
    whole = segment(log).stat().st_size
    assert whole > acknowledged + 200
    if restarted:
        restart()
    for cut in reversed(range(acknowledged, whole, 7)):
        copy = torn(log, cut)
        assert copy.latest("t") == {0: 2}
        assert values(copy) == [b"one", b"two"]
        assert copy.append("t", [b"5"], producer="p", sequence=1) == {0: (2, 3)}
        assert values(copy) == [b"one", b"two", b"5"]


def test_a_whole_append_that_was_not_acknowledged_appears_as_a_whole(embedded):
    embedded.create("t", 2)
    embedded.append("t", [b"one", b"two"])
    crash_in_append(embedded, [b"three", b"four"], producer="p", sequence=1)
    assert embedded.latest("t") == {0: 2, 1: 2}  # it looks like one that a head has forgotten
    again = embedded.append("t", [b"three", b"four"], producer="p", sequence=1)
    assert {p: ack.end for p, ack in again.items()} == embedded.latest("t") == {0: 2, 1: 2}


def test_a_whole_append_found_after_a_restart_is_kept_with_its_producer(log, restart):
    log.append("t", [b"one"])
    crash_in_append(log, [b"two"], at="log.synced", producer="p", sequence=9)
    restart()
    assert values(log) == [b"one", b"two"]
    assert log.append("t", [b"two"], producer="p", sequence=9) == {0: (1, 2)}
    assert values(log) == [b"one", b"two"]


def test_an_append_of_several_blocks_is_kept_whole_or_not_at_all(embedded, restart):
    embedded.create("t", 1, "n bigint")
    table = pa.table({"n": range(600_000)})
    crash_in_append(embedded, table)
    blocks = segment(embedded).stat().st_size
    restart()
    copy = torn(embedded, blocks - 1)
    assert copy.latest("t") == {0: 0}
    assert copy.append("t", [(7,)]) == {0: (0, 1)}
    assert embedded.latest("t") == {0: 600_000}


def test_an_append_to_several_partitions_appears_in_all_or_none(embedded):
    embedded.create("t", 4)
    crash_in_append(embedded, [b"x"] * 8, at="log.block")
    assert set(embedded.latest("t").values()) == {0}
    embedded.append("t", [b"x"] * 8)
    assert embedded.latest("t") == dict.fromkeys(range(4), 2)


@pytest.mark.parametrize("blocks", [1, 2, 3, 4])
def test_never_half_of_an_append_after_a_restart(embedded, restart, blocks):
    embedded.create("t", 4)
    embedded.append("t", [b"a"] * 4)
    passed = []

    def hook(name):
        passed.append(name)
        if passed.count("log.block") == blocks:
            raise Crash

    with faults.hooked(hook), pytest.raises(Crash):
        embedded.append("t", [b"b"] * 4)
    restart()
    whole = 2 if blocks == 4 else 1
    assert EmbeddedLog(embedded.root).latest("t") == dict.fromkeys(range(4), whole)
    embedded.append("t", [b"c"] * 4)
    assert embedded.latest("t") == dict.fromkeys(range(4), whole + 1)


def test_every_flipped_bit_of_acknowledged_bytes_is_an_error_that_names_file_and_byte(log):
    for i in range(3):
        log.append("t", [b"%d" % i] * 3, producer="p", sequence=i)
    path = segment(log)
    start = log._topics.find("t").reader.head().start
    third = (path.stat().st_size - start) // 3
    for byte in range(start + third, start + 2 * third):
        flip(path, byte, byte % 8)
        with pytest.raises(LogError) as caught:
            values(log)
        assert caught.value.code == "HR-LOG-008"
        assert str(path) in caught.value.message
        assert str(start + third) in caught.value.message
        assert values(log, 0, 3) == [b"0"] * 3
        flip(path, byte, byte % 8)
    assert len(values(log)) == 9


def test_a_flipped_bit_is_not_taken_for_a_torn_tail_after_a_restart(log, restart):
    first = segment(log).stat().st_size
    log.append("t", [b"one"])
    second = segment(log).stat().st_size
    log.append("t", [b"two"])
    log.append("t", [b"three"])
    os.remove(log.root / "t" / "head")
    for byte in (first, first + 5, second, second + 70):
        flip(segment(log), byte)
        restart()
        for call in (lambda: log.latest("t"), lambda: log.append("t", [b"x"])):
            with pytest.raises(LogError) as caught:
                call()
            assert caught.value.code == "HR-LOG-008"
        flip(segment(log), byte)
    assert values(log) == [b"one", b"two", b"three"]


def test_acknowledged_bytes_that_are_missing_are_an_error_for_all(log, restart):
    log.append("t", [b"one"])
    log.append("t", [b"two"])
    sound = segment(log).read_bytes()
    for size in range(0, len(sound), 64):
        os.truncate(segment(log), size)
        for call in (lambda: values(log, 1), lambda: log.append("t", [b"x"])):
            with pytest.raises(LogError) as caught:
                call()
            assert caught.value.code == "HR-LOG-009"
            assert "remove" not in caught.value.hint
            assert segment(log).stat().st_size == size
        segment(log).write_bytes(sound)
    assert values(log) == [b"one", b"two"]


def test_a_missing_segment_is_an_error(embedded, restart):
    embedded.create("t", segment_bytes=1)
    for i in range(4):
        embedded.append("t", [b"%d" % i])
    last, second = segment(embedded, 3), segment(embedded, 1)
    os.remove(second)
    with pytest.raises(LogError) as caught:
        values(embedded)
    assert caught.value.code == "HR-LOG-009"
    assert values(embedded, 2) == [b"2", b"3"]

    os.remove(last)
    for again in (lambda: None, restart):
        again()
        for call in (lambda: values(embedded, 3), lambda: embedded.append("t", [b"x"])):
            with pytest.raises(LogError) as caught:
                call()
            assert caught.value.code == "HR-LOG-009"


@pytest.mark.parametrize("harm", ["flip", "truncate", "remove", "garbage"])
def test_a_damaged_index_costs_time_only(embedded, clock, harm):
    embedded.create("t")
    for i in range(30):
        embedded.append("t", [b"%d" % i * 10_000])
        clock.advance(1_000)
    path = index_path(embedded.root / "t", 0)
    sound = path.read_bytes()
    assert len(sound) >= 24 * 4
    expected = values(embedded)
    for byte in range(0, len(sound), 9):
        if harm == "flip":
            flip(path, byte, byte % 8)
        elif harm == "truncate":
            path.write_bytes(sound[:byte])
        elif harm == "garbage":
            path.write_bytes(os.urandom(100))
        else:
            path.unlink(missing_ok=True)
        for offset in (0, 11, 12, 29):
            assert values(embedded, offset, offset + 1) == expected[offset : offset + 1]
            assert embedded.offset_for_time("t", 0, 1_000_000 + 1_000 * offset) == offset
        path.write_bytes(sound)


@pytest.mark.parametrize("file", ["topic.json", "*.log"])
def test_the_logs_own_files_are_checked(embedded, file):
    embedded.create("t", segment_bytes=1)
    for i in range(2):
        embedded.append("t", [b"x"], producer="p", sequence=i)
    path = sorted((embedded.root / "t").glob(file))[-1]
    sound = path.read_bytes()
    for harm in (lambda: flip(path, 30), lambda: os.truncate(path, 20)):
        harm()
        again = EmbeddedLog(embedded.root)
        with pytest.raises(LogError) as caught:
            again.append("t", [b"x"], producer="p", sequence=1)
        assert caught.value.code in ("HR-LOG-011", "HR-LOG-009")
        assert path.name in caught.value.message
        path.write_bytes(sound)


def test_a_format_of_a_later_version_is_refused(log):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(topic, "FORMAT", 4)
        log.create("later")
    with pytest.raises(LogError) as caught:
        EmbeddedLog(log.root).latest("later")
    assert caught.value.code == "HR-LOG-014"


@pytest.mark.parametrize("hidden", [1, 2, 20], ids=["one", "two", "segments"])
@pytest.mark.parametrize("anew", [True, False], ids=["opened anew", "open"])
def test_an_old_copy_of_the_head_hides_nothing(embedded, folder, hidden, anew):
    embedded.create("t", 2, segment_bytes=1_000)
    embedded.append("t", [b"first"], partition=0)
    other = EmbeddedLog(folder / "log")
    assert other.latest("t") == {0: 1, 1: 0}
    head = embedded.root / "t" / "head"
    old = head.read_bytes()
    for _ in range(hidden):
        embedded.append("t", [b"x" * 300], partition=1)
    head.write_bytes(old)
    log = EmbeddedLog(folder / "log") if anew else other
    assert log.latest("t") == {0: 1, 1: hidden}
    assert sum(len(t) for _, t in log.read("t", 1, 0)) == hidden
    assert embedded.append("t", [b"y"], partition=1) == {1: (hidden, hidden + 1)}


def test_a_segment_of_another_topic_is_seen(embedded):
    for name in ("t", "u"):
        embedded.create(name)
        embedded.append(name, [b"a"])
    shutil.copy(embedded.root / "u" / segment(embedded).name, segment(embedded))
    with pytest.raises(LogError) as caught:
        values(EmbeddedLog(embedded.root))
    assert caught.value.code == "HR-LOG-011"


def test_a_full_disk_is_an_error_and_nothing_is_appended(log, monkeypatch):
    log.append("t", [b"one"])
    size = segment(log).stat().st_size
    write = os.pwritev

    def full(fd, buffers, at):
        write(fd, [bytes(buffers[0])[:100]], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwritev", full)
    with pytest.raises(LogError) as caught:
        log.append("t", [b"two"])
    assert caught.value.code == "HR-LOG-010"
    assert "No space left" in caught.value.message
    assert segment(log).stat().st_size == size
    monkeypatch.undo()
    assert log.append("t", [b"two"]) == {0: (1, 2)}
    assert values(log) == [b"one", b"two"]


def test_a_short_write_is_continued(log, monkeypatch):
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, b, at: write(fd, [memoryview(b[0])[:7]], at))
    log.append("t", [b"x" * 1_000, b"y"])
    assert values(log) == [b"x" * 1_000, b"y"]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(LogError) as caught:
        EmbeddedLog(file / "log").create("t")
    assert caught.value.code == "HR-LOG-010"


@pytest.mark.parametrize(("failures", "code"), [(1, "HR-LOG-010"), (100, "HR-LOG-018")])
def test_an_append_that_cannot_be_synced_is_not_acknowledged(log, monkeypatch, failures, code):
    sync, left = os.fdatasync, [None] * failures

    def fails(fd):
        if left:
            left.pop()
            raise OSError(errno.EIO, "Input/output error")
        sync(fd)

    monkeypatch.setattr(os, "fdatasync", fails)
    with pytest.raises(LogError) as caught:
        log.append("t", [b"x"])
    assert caught.value.code == code
    monkeypatch.undo()
    assert log.latest("t") == {0: 0}
    assert log.append("t", [b"y"]) == {0: (0, 1)}


@pytest.mark.parametrize("file", ["topic.json", "head", "00000000000000000000.log"])
def test_what_cannot_be_read_is_an_error(log, file):
    log.append("t", [b"x"])
    path = log.root / "t" / file
    path.unlink()
    path.mkdir()  # root may read any file, but nobody a folder
    with pytest.raises(LogError) as caught:
        values(EmbeddedLog(log.root))
    assert caught.value.code == "HR-LOG-015"
    assert path.name in caught.value.message
