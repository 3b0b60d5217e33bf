"""The terminal as an output: a table for people, lines for pipes.

At least once: an epoch that was printed just before a crash is printed again after it.
Rows are staged in the job's folder like those of any output, so nothing is printed that is
not in a manifest.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headrace.errors import OutputError
from headrace.printed import texts_of
from headrace.sinks.columns import packed
from headrace.sinks.contract import (
    AT_LEAST_ONCE,
    Description,
    EpochWriter,
    OutputKind,
    OutputRequest,
    Reference,
    Sink,
    Timelines,
    bad_option,
    refuse_unknown,
)
from headrace.sinks.durable import Staging
from headrace.sinks.formats import json_lines
from headrace.state.faults import point

SHOWN = 20
STDOUT = "HEADRACE_STDOUT"  # in the environment: the path of the driver's standard output


class ConsoleSink(Sink):
    guarantee = AT_LEAST_ONCE
    because = "what was printed cannot be taken back: after a crash an epoch may be printed again"

    def __init__(
        self,
        schema: pa.Schema,
        staged: Path,
        name: str,
        *,
        format: str | None = None,
        rows: int | None = None,
        stream: TextIO | None = None,
    ) -> None:
        self.schema, self._name, self._staging = schema, name, Staging(staged)
        self._format, self._rows = format, rows
        self._stream = stream  # none: whatever standard output is when it is time to print
        self._printed = -1

    def stage(self, table: pa.Table, epoch: int, unique: str) -> list[Reference]:
        return self._staging.add(table.select(self.schema.names), epoch, unique)

    def describe(self) -> Description:
        return {
            "kind": "console",
            "place": "console:",
            "format": self._format,
            "options": {} if self._rows is None else {"rows": self._rows},
            "schema": packed(self.schema),
        }

    def publish(self, epoch: int, staged: list[Reference], writer: EpochWriter) -> None:
        if epoch > self._printed and staged:
            rows = pa.concat_tables([self._staging.read(r) for r in staged])
            writer.check()
            self._print(epoch, rows)
            self._printed = epoch
            point("sink.publish.printed")

    def staged_at(self, reference: Reference) -> Path | None:
        return self._staging.at(reference)

    def discard(self, live: Set[str], upto: int | None = None) -> None:
        self._staging.sweep(live, upto)

    def go_back(self, timelines: Timelines, writer: EpochWriter) -> str:
        return f"output {self._name!r}: what was printed stays printed"

    def _print(self, epoch: int, rows: pa.Table) -> None:
        with self._opened() as stream:
            self._print_to(stream, epoch, rows)

    @contextmanager
    def _opened(self) -> Iterator[TextIO]:
        """The user's standard output: on Spark a job commits in a process of its own."""
        users = os.environ.get(STDOUT, "")
        elsewhere = f"/{os.getpid()}/" not in users and os.path.exists(users)
        if self._stream is None and elsewhere:
            with reopened(users) as stream:
                yield stream
        else:
            yield self._stream or sys.stdout

    def _print_to(self, stream: TextIO, epoch: int, rows: pa.Table) -> None:
        if self._format == "json":
            stream.write(json_lines(rows.slice(0, self._rows)).decode())
        elif self._format == "table" or (self._format is None and stream.isatty()):
            self._print_table(stream, epoch, rows)
        else:
            stream.writelines(f"{self._name}: {line}\n" for line in _lines(rows, self._rows))
        stream.flush()

    def _print_table(self, stream: TextIO, epoch: int, rows: pa.Table) -> None:
        limit = SHOWN if self._rows is None else self._rows
        table = Table(title=escape(f"{self._name} · epoch {epoch}"), title_justify="left")
        for field in rows.schema:
            number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            table.add_column(escape(field.name), justify="right" if number else "left")
        for row in texts_of(rows.slice(0, limit)):
            table.add_row(*map(escape, row))
        if rows.num_rows > limit:
            table.caption = f"and {rows.num_rows - limit} more"
        Console(file=stream).print(table)


def _check(o: OutputRequest) -> None:
    refuse_unknown(o, ("format", "rows", "stream"))
    if o.options.get("format") not in (None, "table", "lines", "json"):
        hint = 'Pass format="table", "lines" or "json".'
        raise bad_option(o, "format", o.options["format"], hint)
    rows, stream = o.options.get("rows"), o.options.get("stream")
    if rows is not None and (type(rows) is not int or rows < 1):
        raise bad_option(o, "rows", rows, "Give the most rows to print of a batch, 1 or more.")
    if stream is not None and not hasattr(stream, "write"):
        raise bad_option(o, "stream", stream, "Pass an open file, such as sys.stderr.")


def _open(o: OutputRequest) -> Sink:
    return ConsoleSink(o.schema, o.staged, o.name, **o.options)


def _reopen(about: Description) -> tuple[str, dict[str, Any]]:
    return "", {**about["options"], "format": about["format"]}


CONSOLE = OutputKind(_check, _open, _reopen)


def reopened(path: str) -> TextIO:
    """Standard output by its path, for appending; OutputError if that is refused."""
    try:
        return open(path, "a", encoding="utf-8", opener=_at_once)
    except OSError as error:
        raise OutputError(
            "HR-OUTPUT-014",
            f"the console cannot be written: standard output cannot be opened again "
            f"({error.strerror})",
            "Rows are printed by another process. If standard output belongs to another user, "
            "or is a socket, put a pipe of your own in between: headrace run job.py | cat; "
            'or write to "files:".',
        ) from error


def _at_once(path: str, flags: int) -> int:
    """Opens without waiting for a reader: a pipe without one is an error."""
    handle = os.open(path, flags | os.O_NONBLOCK, 0o600)
    os.set_blocking(handle, True)
    return handle


def _lines(rows: pa.Table, limit: int | None) -> list[str]:
    shown = rows.slice(0, limit)
    names = rows.column_names
    return [
        " ".join(f"{n}={v}" for n, v in zip(names, row, strict=True)) for row in texts_of(shown)
    ]
