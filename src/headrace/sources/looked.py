"""Inputs for a look at a program: what is there now, without waiting, without a trace.

An input that is made in the program is never told that rows are safe, so it forgets none; a
generator makes its rows at once, whatever its rate, and if it has no end, only its first ones. What
is received (a socket, an endpoint) is refused: what a look received of it, the job would never see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headrace.errors import InputError, Site
from headrace.sources.contract import Offset
from headrace.sources.generate import GenerateSource
from headrace.sources.loop import LoopSource
from headrace.sources.memory import MemorySource
from headrace.sources.spark_frames import SparkSource

ENDLESS_ROWS = 10_000  # of a generator without a total
# by kind: what cannot be read twice
_RECEIVED = {
    "socket": "a socket",
    "listen": "a socket",
    "http": "an endpoint",
    "sse": "a stream of events",
    "mqtt": "a subscription",
}


class Unforgetting:
    """A source that never learns that its rows are safe; all else is the source's own."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_source":  # while it is unpickled
            raise AttributeError(name)
        return getattr(self._source, name)

    def commit(self, offsets: Mapping[str, Offset]) -> None:
        return None


def to_look_at(
    uri: str | Any, name: str, site: Site | None = None, *, changes: bool = False
) -> Any:
    """What is read in the place of `uri`, the input `name`."""
    if isinstance(uri, str):
        if changes:
            raise InputError(
                "HR-INPUT-018",
                f"input {name!r} are changes: a look would make a replication slot in the database",
                "Run the job; or look at the table itself: leave changes=True out.",
                site=site,
            )
        if what := _RECEIVED.get(uri.partition(":")[0]):
            raise InputError(
                "HR-INPUT-018",
                f"input {name!r} is {what}: what a look received from {uri!r}, the job would "
                "never see",
                "Run the job; or try the program on rows of your own: job.read(hr.rows(...)).",
                site=site,
            )
        return uri
    if isinstance(uri, LoopSource):
        raise InputError(
            "HR-INPUT-018",
            f"the tuples of {name!r} go round, from batch to batch, and a look is one batch",
            "Run the job; or look at what does not depend on them.",
            site=site,
        )
    if isinstance(uri, GenerateSource):
        total = ENDLESS_ROWS if uri.total is None else uri.total
        return replace(uri, rate=None, total=total)
    if isinstance(uri, SparkSource) and uri.streaming:
        raise InputError(
            "HR-INPUT-018",
            f"input {name!r} is a streaming DataFrame: a look would start a query of its own",
            "Run the job; or look at some rows of it: hr.from_spark(spark.read...).",
            site=site,
        )
    return uri if isinstance(uri, MemorySource | SparkSource) else Unforgetting(uri)


def is_cut(uri: object) -> bool:
    """Whether a look reads only the first rows of an input that has no end."""
    return isinstance(uri, GenerateSource) and uri.total is None
