"""From where on a job's folder still has the rows that its inputs have stored there.

For whoever has a folder and no program. What is stored elsewhere (topics, tables, files) only the
input itself can tell, when it is opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.errors import InputError
from headrace.log import EmbeddedLog
from headrace.sources import received, spouts, stored_rows
from headrace.sources.open import home_of
from headrace.sources.spark_rows import SparkRows

_TOPICS = (received.TOPIC, stored_rows.TOPIC, spouts.TOPIC)


def check_stored(folder: str | Path, key: str, name: str, offsets: Mapping[str, Any]) -> None:
    """Raise InputError if rows of an input after `offsets` were stored here and are forgotten."""
    home = home_of(str(folder), key)
    for split, at in offsets.items():
        first = _first(home, int(split) if split.isdigit() else 0)
        if first is not None and at < first:
            raise InputError(
                "HR-INPUT-011",
                f"the first {first} rows of input {name!r} were read and forgotten, and the "
                f"epoch would read on from {at}",
                "Choose a later epoch. What a savepoint needs is not forgotten: create it in time.",
            )


def _first(home: Path, partition: int) -> int | None:
    """The first row that is still stored; None if the input stores none."""
    for topic in _TOPICS:
        if (home / topic / "topic.json").exists():
            return EmbeddedLog(home).describe(topic).earliest[partition]
    batches = SparkRows(home)
    return batches.start if batches.begun else None
