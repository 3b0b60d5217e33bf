"""Folders of jobs in memory, where there is such a place: syncs cost nothing there."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def home() -> Iterator[Path]:
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="headrace-golden-", dir=memory) as name:
        yield Path(name)
