"""Tables that Spark builds for lookups, before a run and again while it goes on.

The driver runs the user's batch and replaces a file in the job's folder by the result, whole and
durable; tasks read that file. A batch that fails during the run changes nothing: it is reported,
and tried again when due.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
from pyspark.sql import SparkSession

from headrace.driver.start import Start
from headrace.engine.driver_worker import DriverThread, clean_folder, reason, to_arrow_table
from headrace.errors import HeadraceError, StepError
from headrace.files import replacing, sync_folder
from headrace.inspect.progress import moment
from headrace.ops.join.lookup import Lookup
from headrace.ops.join.lookup_tables import SparkTable, SparkTableFile, column_of
from headrace.plan.nodes import Node, Stateful
from headrace.sinks.durable import named, write

FOLDER = "tables"
_POLL = 0.1  # seconds


@dataclass(frozen=True)
class _DriverTable:
    """One lookup's table: how it is built, and where it is."""

    node: Stateful
    what: Lookup
    source: SparkTable
    path: Path

    @property
    def schema(self) -> pa.Schema:
        """The columns that the lookup uses; a key has the type of the column it meets."""
        columns = self.node.inputs[0].schema
        pairs = zip(self.what.theirs, self.node.keys[0], strict=True)
        return pa.schema([*[(name, columns.field(k).type) for name, k in pairs], *self.what.value])

    def make(self, spark: SparkSession) -> pa.Table:
        assert self.source.make is not None
        table = to_arrow_table(self.source.make(spark))
        columns = [column_of(table, f.name, f.type) for f in self.schema]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def node_for_tasks(self) -> Stateful:
        return replace(self.node, what=replace(self.what, source=SparkTableFile(str(self.path))))


def replace_table(path: Path, table: pa.Table) -> None:
    """Replace the table at `path`, durably; whoever is reading the old one reads it to its end."""
    with named(path):
        with replacing(path) as fresh:
            write(fresh, partial(pa.parquet.write_table, table))
        sync_folder(path.parent)


class LookupTables:
    """All tables that Spark builds for one run."""

    def __init__(self, start: Start, spark: SparkSession, say: Callable[[str], None]) -> None:
        self._bundle, self._spark, self._say = start.bundle, spark, say
        self._folder, self._token = Path(start.log.folder) / FOLDER, start.token
        self._tables = list(self._spark_tables())
        self._due: dict[str, int] = {}
        self._made_at: dict[str, int] = {}
        self._wrong: dict[str, str] = {}
        self._turn, self._worker = threading.Lock(), DriverThread(spark, "headrace-tables", say)

    def _spark_tables(self) -> Iterator[_DriverTable]:
        for number, node in enumerate(self._bundle.program.nodes.values()):
            if isinstance(node, Stateful) and isinstance(node.what, Lookup):
                source, path = node.what.source, self._folder / f"{self._token}-{number}.parquet"
                if isinstance(source, SparkTable):
                    yield _DriverTable(node, node.what, source, path)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with tables that could not be built when they were due."""
        return tuple(self._wrong.values())

    def first(self) -> dict[str, Node]:
        """Make all tables, or raise; the nodes that tasks must have to find them."""
        if self._tables or self._folder.is_dir():
            clean_folder(self._folder, self._token)
        for table in self._tables:
            try:
                self._make(table)
            except HeadraceError:
                raise
            except Exception as error:
                raise _unmade(table, error) from error
        return {t.node.name: t.node_for_tasks() for t in self._tables}

    def start_refreshing(self) -> None:
        """From now on, make them anew when they are due."""
        if any(t.what.refresh is not None for t in self._tables):
            self._worker.begin(self.refresh, _POLL)

    def refresh(self) -> None:
        """Make anew what is due now; when this returns, it is done."""
        with self._turn:
            for table in self._tables:
                due = self._due.get(table.node.name)
                if due is None or self._bundle.clock.now() < due or self._worker.over:
                    continue
                try:
                    self._make(table)
                except (Exception, SystemExit) as error:
                    self._failed(table, error)
                else:
                    self._went_well(table)

    def close(self) -> None:
        """Make no more."""
        self._worker.close()

    def _make(self, table: _DriverTable) -> None:
        name, began = table.node.name, self._bundle.clock.now()
        if table.what.refresh is not None:
            self._due[name] = began + table.what.refresh
        with self._worker.tagged():
            rows = table.make(self._spark)
        if not self._worker.over:
            replace_table(table.path, rows)
            self._made_at[name] = began

    def _failed(self, table: _DriverTable, error: BaseException) -> None:
        """Say it once, however long it lasts."""
        if self._worker.over:
            return
        name = table.node.name
        warning = (
            f"the table of {name!r} could not be refreshed: {reason(error)}; "
            f"rows still find the one of {moment(self._made_at[name])}"
        )
        if name not in self._wrong:
            self._say(warning)
        self._wrong[name] = warning

    def _went_well(self, table: _DriverTable) -> None:
        name = table.node.name
        if self._wrong.pop(name, None) is not None:
            self._say(f"the table of {name!r} is refreshed again")


def _unmade(table: _DriverTable, error: Exception) -> StepError:
    return StepError(
        "HR-JOIN-025",
        f"the table of {table.node.name!r} cannot be built by Spark: {reason(error)}",
        "A run begins when its tables are there: see that the function returns a DataFrame "
        "with the columns of schema=.",
        site=table.node.site,
    )
