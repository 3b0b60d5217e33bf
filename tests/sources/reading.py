"""What the tests of sources share: reading as an engine would, and refusals."""

from __future__ import annotations

from typing import Any

from headrace.sources import Source
from headrace.testing.input_suite import again as again
from headrace.testing.input_suite import chunks as chunks
from headrace.testing.input_suite import epochs as epochs
from headrace.testing.input_suite import read_split as read_split
from headrace.testing.input_suite import refused_by
from headrace.testing.input_suite import snapshot as snapshot
from headrace.testing.input_suite import typed as typed

refusal = refused_by


def read_all(source: Source, rows: int = 1000, pieces: int = 3) -> list[dict[str, Any]]:
    return [r for s in source.splits() for r in read_split(source, s, None, rows, pieces)[0]]
