"""Reading a topic for the console: from where, how much, and whether to wait for more."""

from __future__ import annotations

import time
from datetime import datetime

import typer

from headrace.cli.topic_lines import lines_of
from headrace.clock import SystemClock, millis
from headrace.errors import HeadraceError, LogError
from headrace.log import Log

_POLL = 0.02  # seconds between looks at the end of the topic


class Consumer:
    """Reads some partitions of a topic from where it was told."""

    def __init__(self, log: Log, name: str, partition: int | None, keys: bool) -> None:
        self.log, self.name, self.keys = log, name, keys
        self.typed = log.describe(name).schema is not None
        self.at = log.latest(name)
        if partition is not None:
            log.offset_for_time(name, partition, 0)  # refuses a partition that is not there
            self.at = {partition: self.at[partition]}

    def seek(self, from_beginning: bool, since: str | None) -> None:
        if since is not None:
            ms = _moment(since)
            self.at = {p: self.log.offset_for_time(self.name, p, ms) for p in self.at}
        elif from_beginning:
            earliest = self.log.earliest(self.name)
            self.at = {p: earliest[p] for p in self.at}

    def run(self, most: int | None, follow: bool) -> None:
        left = most
        while left is None or left > 0:
            printed = self._poll(left)
            left = None if left is None else left - printed
            if not printed and not follow:
                return
            if not printed:
                time.sleep(_POLL)

    def _poll(self, most: int | None) -> int:
        """Print what is there, at most `most` records; how many."""
        printed = 0
        for partition, end in self.log.latest(self.name).items():
            if partition in self.at and (most is None or printed < most):
                limit = None if most is None else most - printed
                printed += self._print(partition, end, limit)
        return printed

    def _print(self, partition: int, end: int, limit: int | None) -> int:
        start = max(self.at[partition], self.log.earliest(self.name)[partition])
        if start > self.at[partition]:
            typer.echo(
                f"partition {partition}: records {self.at[partition]} to {start - 1} are gone",
                err=True,
            )
        for first, table in self.log.read(self.name, partition, start, end, limit):
            typer.echo("\n".join(lines_of(table, self.typed, self.keys)))
            self.at[partition] = first + table.num_rows
        return self.at[partition] - start


def _moment(text: str) -> int:
    """Milliseconds of a time, or of so long ago."""
    try:
        at = datetime.fromisoformat(text)
        return round(at.astimezone().timestamp() * 1_000)
    except ValueError:
        pass
    try:
        return SystemClock().now() - millis(text.removesuffix("ago"))
    except HeadraceError as error:
        raise LogError(
            f"{text!r} is neither a time nor a duration", code="HR-LOG-004",
            hint='Write "10m" for ten minutes ago, or a time such as 2026-03-01T12:00.',
        ) from error  # fmt: skip
