"""Spark's Python worker daemon, with what every task needs imported before it forks."""

from __future__ import annotations

import gc

import headrace.engine.binding  # noqa: F401  pyarrow, duckdb, numpy and the runtime come along
from headrace import import_path

if __name__ == "__main__":
    import_path.extend(import_path.from_environment())
    from pyspark import worker  # noqa: F401
    from pyspark.daemon import manager

    gc.collect()
    gc.freeze()  # a worker collects garbage after every task: not over all these modules
    manager()
