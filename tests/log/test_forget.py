"""Removing what was read: whole segments before an offset, and nothing else."""

from __future__ import annotations

import pytest

from headrace.errors import LogError
from headrace.log import EmbeddedLog


def values(log: EmbeddedLog, partition: int) -> list[bytes]:
    first = log.earliest("t")[partition]
    tables = [table for _, table in log.read("t", partition, first)]
    return [value for table in tables for value in table["value"].to_pylist()]


def test_segments_before_the_offset_go_and_the_rest_stays(tmp_path):
    log = EmbeddedLog(tmp_path)
    log.create("t", segment_bytes=1)  # one append each
    for i in range(5):
        log.append("t", [b"%d" % i])

    assert log.forget("t", {0: 3}) == 3
    assert log.forget("t", {0: 3}) == log.forget("t", {}) == 0

    assert values(log, 0) == values(EmbeddedLog(tmp_path), 0) == [b"3", b"4"]
    with pytest.raises(LogError) as refused:
        log.read("t", 0, 2)
    assert refused.value.code == "HR-LOG-007"
    assert log.append("t", [b"5"]) == {0: (5, 6)}


def test_the_last_segment_stays_and_a_segment_goes_when_all_partitions_have_read_it(tmp_path):
    log = EmbeddedLog(tmp_path)
    log.create("t", 2, segment_bytes=1)
    for i in range(3):
        log.append("t", [b"%d" % i], partition=0)
        log.append("t", [b"%d" % i], partition=1)

    log.forget("t", {0: 3})
    assert values(log, 1) == [b"0", b"1", b"2"]
    log.forget("t", {0: 3, 1: 1})
    assert (values(log, 0), values(log, 1)) == ([b"2"], [b"1", b"2"])
    log.forget("t", {0: 3, 1: 3})
    assert (values(log, 0), values(log, 1)) == ([], [b"2"])


def test_an_unknown_topic_is_refused(tmp_path):
    with pytest.raises(LogError) as refused:
        EmbeddedLog(tmp_path).forget("t", {0: 1})
    assert refused.value.code == "HR-LOG-002"
