"""What Spark does for a run: the streaming query, and around it what only Spark computes.

Lookup tables, the batches of steps, inputs and outputs that are Spark's each prepare something
before the query is launched, and are closed with it. Its checkpoint is a folder that is thrown
away: the manifests are the truth.
"""

from __future__ import annotations

import shutil
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from headrace.driver.planner import Pace
from headrace.driver.start import Start
from headrace.engine.binding import Binding, Level, PickledBundle, data_source
from headrace.engine.lookup_tables import LookupTables
from headrace.engine.session import activate, configured
from headrace.engine.spark_batches import SparkBatches
from headrace.engine.spark_inputs import SparkInputs
from headrace.engine.spark_outputs import SparkOutputs
from headrace.engine.stall_watch import heartbeat
from headrace.engine.temp_folder import temp_folder
from headrace.epoch.envelope import DDL
from headrace.state.faults import point


class SparkWork:
    def __init__(
        self, start: Start, spark: Any, pace: Pace, keep: int, say: Callable[[str], None]
    ) -> None:
        self._start, self._spark, self._pace, self._keep = start, spark, pace, keep
        self.name = f"headrace_{uuid.uuid4().hex[:12]}"
        self.scratch = tempfile.mkdtemp(prefix="query-", dir=temp_folder().path)
        self.tables = LookupTables(start, spark, say)
        self.batches = SparkBatches(start, spark, say)
        self.frames = SparkInputs(start, spark, say)
        self.deliveries = SparkOutputs(start, spark, say)

    def launch(self) -> Any:
        point("start.launch")
        spark, start, pace = self._spark, self._start, self._pace
        activate(spark)
        self.frames.first()
        nodes = self.tables.first() | self.batches.first()
        known = start.bundle.program
        program = replace(known, nodes={**known.nodes, **nodes})
        sinks = self.deliveries.first()
        cargo = PickledBundle.pack(replace(start.bundle, program=program, sinks=sinks))
        name, keep = self.name, self._keep
        sign = str(heartbeat(self.scratch))
        binding = Binding(name, cargo, str(start.log.folder), start.token, pace, keep, sign)
        with configured(spark):
            spark.dataSource.register(data_source(binding))
            frame = spark.readStream.format(name).load()
            for level in range(1, program.depth + 1):
                shuffled = frame.repartitionById(pace.tasks, "task")
                frame = shuffled.mapInArrow(Level(cargo, level), DDL)
            writer = frame.writeStream.format(name).queryName(name)
            query = writer.option("checkpointLocation", f"file://{self.scratch}").start()
        point("start.query")
        return query

    def stop_begun(self) -> None:
        """Stop the query of a start that did not get to its end."""
        with suppress(Exception):  # Spark may be gone
            for query in self._spark.streams.active:
                if query.name == self.name:
                    query.stop()

    def close(self) -> None:
        self.tables.close()
        self.batches.close()
        self.frames.close()
        self.deliveries.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
        heartbeat(self.scratch).unlink(missing_ok=True)
