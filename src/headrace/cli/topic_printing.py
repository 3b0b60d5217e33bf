"""Reading a topic for the console: from where, how much, and whether to wait for more."""

from __future__ import annotations

import time

import typer

from headrace.cli.topic_lines import lines_of
from headrace.cli.topic_text import moment_of
from headrace.log import Consumer, Log
from headrace.log.contract import OFFSET

_POLL = 0.02  # seconds between looks at the end of the topic


class TopicPrinter:
    """Reads some partitions of a topic from given offsets on."""

    def __init__(self, log: Log, name: str, partition: int | None, keys: bool) -> None:
        self.log, self.name, self.keys = log, name, keys
        self.typed = log.describe(name).schema is not None
        self.at = log.latest(name)
        if partition is not None:
            log.offset_for_time(name, partition, 0)  # refuses a partition that is not there
            self.at = {partition: self.at[partition]}

    def seek(self, from_beginning: bool, since: str | None) -> None:
        if since is not None:
            ms = moment_of(since)
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
        printed = 0
        read = self.log.read(self.name, partition, start, end, offsets=True)
        for _, chunk in read:
            table = chunk if limit is None else chunk.slice(0, limit - printed)
            if table.num_rows:
                self.at[partition] = table[OFFSET][-1].as_py() + 1
                typer.echo("\n".join(lines_of(table.drop([OFFSET]), self.typed, self.keys)))
                printed += table.num_rows
            if printed == limit:
                return printed
        self.at[partition] = end
        return printed


class GroupPrinter:
    """Reads a topic as a member of a group; what was printed is committed."""

    def __init__(self, log: Log, name: str, group: str, start: str, keys: bool) -> None:
        self.typed, self.keys = log.describe(name).schema is not None, keys
        self.consumer = Consumer(name, group, log=log, start=start, auto_commit="1s")

    def run(self, most: int | None, follow: bool) -> None:
        left = most
        with self.consumer as consumer:
            while left is None or left > 0:
                options = {} if left is None else {"max_rows": left}
                batch = consumer.poll("1s" if follow else "300ms", **options)
                if batch is not None:
                    typer.echo("\n".join(lines_of(batch.table, self.typed, self.keys)))
                    left = None if left is None else left - len(batch)
                elif not follow:
                    return
