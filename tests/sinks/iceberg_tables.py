"""The table `lake.t` of Iceberg: as an output under test, and as the library has it."""

from __future__ import annotations

import uuid

from tests.sinks.lake_cases import loaded, sqlite_catalog
from tests.sinks.writing import ALONE, SCHEMA

from headrace.sinks import open_sink


def opened(tmp_path, schema=SCHEMA, job="job", **options):
    options.setdefault("catalog", sqlite_catalog(tmp_path))
    return open_sink("iceberg:lake.t", schema, options, str(tmp_path / job), "o")


def put(sink, epoch, rows):
    sink.publish(epoch, sink.stage(rows, epoch, uuid.uuid4().hex), ALONE)


def there(tmp_path):
    return loaded(tmp_path).load_table("lake.t")
