"""Every output under test."""

from __future__ import annotations

import os

import pytest
from tests.sinks.writing import EVERY, EXACT, Output

from headrace.sinks import merging


@pytest.fixture(params=sorted(EVERY))
def output(request, tmp_path) -> Output:
    return EVERY[request.param](tmp_path)


@pytest.fixture(params=sorted(EXACT))
def exact(request, tmp_path) -> Output:
    return EXACT[request.param](tmp_path)


@pytest.fixture
def eager(monkeypatch):
    """Merging after every second epoch, of two files or more."""
    monkeypatch.setattr(merging, "EVERY", 2)
    monkeypatch.setattr(merging, "FEW", 2)


@pytest.fixture
def hasty(monkeypatch):
    """Without waiting for the disk, for tests in which nobody pulls the plug."""
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda handle: None)
