"""Running hand-written Structured Streaming as a contender.

The settings are those that a careful user makes: RocksDB with changelog checkpoints and
without counting its rows, as many shuffle partitions as cores, no user interface. Nothing of
Headrace is imported here.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
}


def session(cores: int, more: Mapping[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder: Any = SparkSession.builder.master(f"local[{cores}]").appName("by hand")
    settings = {**SETTINGS, "spark.sql.shuffle.partitions": str(cores), **(more or {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark: SparkSession = builder.getOrCreate()
    return spark


def drain(frame: DataFrame, place: Path, rows: int) -> dict[str, Any]:
    """Run the query over all that is there now, to Parquet files; `rows` are in each batch.

    Spark itself counts rows after the filters that it has pushed into the source.
    """
    return _drained(
        frame.writeStream.format("parquet").option("path", str(place / "out")), place, rows
    )


def drain_to_kafka(
    frame: DataFrame, brokers: str, topic: str, place: Path, rows: int
) -> dict[str, Any]:
    """The same to a topic, by columns `key` and `value`."""
    to = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", brokers)
    return _drained(to.option("topic", topic), place, rows)


def _drained(to: Any, place: Path, rows: int) -> dict[str, Any]:
    asked = time.time()
    query = (
        to.option("checkpointLocation", str(place / "checkpoint"))
        .trigger(availableNow=True)
        .outputMode("append")
        .start()
    )
    query.awaitTermination()
    progress = [dict(p) for p in query.recentProgress]
    batches = [[rows if p["numInputRows"] else 0, _ms(p), _ms(p) + _took(p)] for p in progress]
    return {
        "batches": batches,
        "timing": [dict(p["durationMs"]) for p in progress],
        "start": batches[0][1] / 1_000 - asked if batches else None,
    }


def _ms(progress: dict[str, Any]) -> int:
    return int(datetime.fromisoformat(progress["timestamp"]).timestamp() * 1_000)


def _took(progress: dict[str, Any]) -> int:
    return int(progress["durationMs"]["triggerExecution"])
