"""Tables that Spark makes for lookups, before a run and again while it goes on.

The driver alone has a session. It runs the user's batch and puts the result, whole and durable,
in the place of a file in the job's folder; tasks read that file. Its name begins with the number
of this start, so a driver that has lost the folder cannot touch the files of the next one. A
batch that fails while the run goes on changes nothing: it is told, and tried again when due.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError, StepError
from headrace.ops.join.loaded import MadeFile, SparkTable
from headrace.ops.join.lookup import Lookup
from headrace.plan.nodes import Apply, Node
from headrace.runtime.bundle import Bundle
from headrace.runtime.start import Start
from headrace.runtime.status import moment
from headrace.sinks.durable import folder_for, named, write
from headrace.state.files import TEMPORARY, sync_folder

FOLDER = "tables"
_NAME = re.compile(r"(\d+)-\d+\.parquet")
_POLL = 0.1  # seconds
_PATIENCE = 5.0  # seconds for a batch to notice that the run is over


@dataclass(frozen=True)
class _Table:
    """One lookup's table: how it is made, and where it is found."""

    node: Apply
    what: Lookup
    source: SparkTable
    path: Path

    @property
    def schema(self) -> pa.Schema:
        """The columns that the lookup uses; a key has the type of the column it meets."""
        known = self.node.inputs[0].schema
        pairs = zip(self.what.theirs, self.node.keys[0], strict=True)
        return pa.schema([*[(name, known.field(k).type) for name, k in pairs], *self.what.value])

    def make(self, spark: SparkSession) -> pa.Table:
        assert self.source.make is not None
        given = self.source.make(spark)
        if not isinstance(given, pa.Table):
            if not hasattr(given, "toArrow"):
                raise TypeError(f"the function gave {given!r}, not a DataFrame")
            given = given.toArrow()
        columns = [given.column(f.name).cast(f.type) for f in self.schema]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def node_for_tasks(self) -> Apply:
        return replace(self.node, what=replace(self.what, source=MadeFile(str(self.path))))


def put(path: Path, made: pa.Table) -> None:
    """Put `made` in the place of what was at `path`; who reads that reads it to its end."""
    fresh = path.with_name(f"{TEMPORARY}{uuid.uuid4().hex}")
    write(fresh, partial(pa.parquet.write_table, made))
    with named(path):
        fresh.replace(path)
        sync_folder(path.parent)


class MadeTables:
    """All tables that Spark makes for one run."""

    def __init__(self, start: Start, spark: SparkSession, say: Callable[[str], None]) -> None:
        self._bundle, self._spark, self._say = start.bundle, spark, say
        self._folder, self._token = Path(start.log.folder) / FOLDER, start.token
        self._tables = list(self._found())
        self._due: dict[str, int] = {}
        self._made: dict[str, int] = {}
        self._wrong: dict[str, str] = {}
        self._over, self._turn = threading.Event(), threading.Lock()
        self._tag = f"headrace-tables-{uuid.uuid4().hex}"
        self._thread: threading.Thread | None = None

    def _found(self) -> Iterator[_Table]:
        for number, node in enumerate(self._bundle.program.nodes.values()):
            if isinstance(node, Apply) and isinstance(node.what, Lookup):
                source, path = node.what.source, self._folder / f"{self._token}-{number}.parquet"
                if isinstance(source, SparkTable):
                    yield _Table(node, node.what, source, path)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with tables that could not be made when they were due."""
        return tuple(self._wrong.values())

    def first(self) -> Bundle:
        """Make all tables, or raise; what tasks must hold to find them."""
        if not self._tables:
            return self._bundle
        folder_for(self._folder)
        self._sweep()
        for table in self._tables:
            try:
                self._make(table)
            except HeadraceError:
                raise
            except Exception as error:
                raise _unmade(table, error) from error
        program = self._bundle.program
        nodes: dict[str, Node] = {t.node.name: t.node_for_tasks() for t in self._tables}
        return replace(self._bundle, program=replace(program, nodes={**program.nodes, **nodes}))

    def keep_up(self) -> None:
        """From now on, make them anew when they are due."""
        if any(t.what.refresh is not None for t in self._tables):
            self._thread = threading.Thread(
                target=self._keep_up, name="headrace-tables", daemon=True
            )
            self._thread.start()

    def refresh(self) -> None:
        """Make anew what is due now; when this returns, it is done."""
        with self._turn:
            for table in self._tables:
                due = self._due.get(table.node.name)
                if due is None or self._bundle.clock.now() < due or self._over.is_set():
                    continue
                try:
                    self._make(table)
                except Exception as error:
                    self._failed(table, error)
                else:
                    self._went_well(table)

    def close(self) -> None:
        """Make no more; a batch that is under way is given up."""
        self._over.set()
        deadline = time.monotonic() + _PATIENCE
        while self._thread and self._thread.is_alive() and time.monotonic() < deadline:
            with suppress(Exception):  # Spark may be gone
                self._spark.sparkContext.cancelJobsWithTag(self._tag)
            self._thread.join(_POLL)  # one that had not begun may have, since

    def _keep_up(self) -> None:
        while not self._over.wait(_POLL):
            self.refresh()

    def _make(self, table: _Table) -> None:
        name, began = table.node.name, self._bundle.clock.now()
        if table.what.refresh is not None:
            self._due[name] = began + table.what.refresh
        with self._tagged():
            made = table.make(self._spark)
        if not self._over.is_set():
            put(table.path, made)
            self._made[name] = began

    @contextmanager
    def _tagged(self) -> Iterator[None]:
        """Spark's jobs in here can be given up by `close`."""
        self._spark.sparkContext.addJobTag(self._tag)
        try:
            yield
        finally:
            with suppress(Exception):  # what went wrong before says more
                self._spark.sparkContext.removeJobTag(self._tag)

    def _failed(self, table: _Table, error: Exception) -> None:
        """Say it once, however long it lasts."""
        if self._over.is_set():
            return
        name = table.node.name
        told = (
            f"the table of {name!r} could not be made anew: {_reason(error)}; "
            f"rows still find the one of {moment(self._made[name])}"
        )
        if name not in self._wrong:
            self._say(told)
        self._wrong[name] = told

    def _went_well(self, table: _Table) -> None:
        name = table.node.name
        if self._wrong.pop(name, None) is not None:
            self._say(f"the table of {name!r} is made anew again")

    def _sweep(self) -> None:
        """Remove what starts before this one have left."""
        with named(self._folder):
            for path in self._folder.iterdir():
                made = _NAME.fullmatch(path.name)
                if path.name.startswith(TEMPORARY) or (made and int(made[1]) < self._token):
                    path.unlink(missing_ok=True)


def _unmade(table: _Table, error: Exception) -> StepError:
    return StepError(
        f"the table of {table.node.name!r} cannot be made by Spark: {_reason(error)}",
        code="HR-JOIN-025", site=table.node.site,
        hint="A run begins when its tables are there: see that the function gives a DataFrame "
        "with the columns of schema=.",
    )  # fmt: skip


def _reason(error: Exception) -> str:
    """What happened in one line: of what Spark says, the first that tells anything."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        return lines[1]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
