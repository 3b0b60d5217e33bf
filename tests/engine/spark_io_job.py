"""A job with a streaming DataFrame, a function for every epoch and a topic, to be killed.

`spark_io_job PLACE` runs it over what is there now. The function stores each call as a file.
"""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import Any

import headrace as hr
from headrace.engine.session import session


def once(place: Path) -> None:
    spark = session("local[2]")
    frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1)

    def each(rows: Any, epoch: int) -> None:
        found = {"epoch": epoch, "ids": sorted(r.id for r in rows.collect())}
        (place / "calls" / uuid.uuid4().hex).write_text(json.dumps(found))

    job = hr.Job("killed")
    numbers = job.read(hr.from_spark(frame.json(str(place / "in"))), name="numbers")
    numbers.for_each_batch(each, name="each")
    numbers.write("log:out", log=str(place / "log"), name="topic")
    folder = str(place / "job")
    hr.run(job, folder=folder, until="now", max_batch=4, master="local[2]", quiet=True).wait()


if __name__ == "__main__":
    once(Path(sys.argv[1]))
