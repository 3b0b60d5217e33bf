"""Changes of PostgreSQL joined with a Kafka topic, to Delta, Kafka and a webhook; to be killed.

python -m tests.engine.many_places_job SETTINGS [spark]

SETTINGS is a file of JSON: the places. Runs until it is killed; on Spark, to what is there now.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.testing import Driver

PAUSE = 0.02  # seconds between two looks when there was nothing to do


def build(places: dict[str, Any]) -> hr.Job:
    """Every order with the name of its customer: a changelog, as either of them changes."""
    job, broker = hr.Job("shop"), f"kafka://{places['broker']}"
    customers = job.read(
        places["database"], table=places["table"], changes=True, poll="20ms", name="customers"
    ).table("id", delete="change_op = 'delete'", unbounded=True)
    orders = job.read(
        f"{broker}/{places['orders']}", schema="order bigint, id bigint", name="orders"
    ).table("order", unbounded=True)
    joined = orders.join(customers, on="id", how="left", time="processing")
    named = joined.select("order", "id", "name", "change")
    named.write(f"delta:{places['delta']}", mode="upsert", key="order", name="delta")
    named.write(f"{broker}/{places['named']}", partitions=2, key="order", name="kafka")
    named.write(f"webhook:{places['hook']}", max_rows=20, name="hook")
    return job


def drive_on(places: dict[str, Any]) -> None:
    driver = Driver(build(places), places["folder"], until=None, max_batch=places["batch"])
    while True:
        if driver.epoch() is None:
            time.sleep(PAUSE)


if __name__ == "__main__":
    settings = json.loads(Path(sys.argv[1]).read_text())
    if sys.argv[2:] == ["spark"]:
        run = hr.run(
            build(settings), folder=settings["folder"], until="now", quiet=True,
            max_batch=settings["batch"], master="local[2]",
        )  # fmt: skip
        run.wait()
    else:
        drive_on(settings)
