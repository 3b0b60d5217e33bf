"""What an append that fails leaves behind: exactly what was acknowledged before it."""

from __future__ import annotations

import errno
import os

import pytest

from headrace.errors import LogError
from headrace.log import EmbeddedLog


def values(log, partition):
    return [v for _, t in log.read("t", partition, 0) for v in t["value"].to_pylist()]


def test_a_full_disk_while_a_segment_rolls_loses_nothing_acknowledged(embedded, monkeypatch):
    embedded.create("t", 4, segment_bytes=1)
    other = EmbeddedLog(embedded.root)
    for i in range(3):
        embedded.append("t", [b"%d" % (i * 4 + k) for k in range(4)])

    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        patch.setattr(os, "pwrite", full)
        patch.setattr(os, "writev", full)
        patch.setattr(os, "pwritev", full)
        with pytest.raises(LogError) as caught:
            other.append("t", [b"x"] * 8)
    assert caught.value.code == "HR-LOG-010"
    found = sorted(int(v) for p in range(4) for v in values(other, p))
    assert found == list(range(12))
    other.append("t", [b"x"] * 8)
    assert sum(len(values(embedded, p)) for p in range(4)) == 20
