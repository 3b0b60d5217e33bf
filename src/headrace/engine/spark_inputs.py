"""DataFrames that are inputs: their rows stored in the job's folder, by the driver's process.

A batch DataFrame is computed before the run's query begins, unless it is stored already. A
streaming one has a query of its own, whose checkpoint is in the job's folder: each of its batches
is stored once, whether Spark repeats it or not. What fails here is an error of the job.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from pyspark.sql import SparkSession

from headrace.driver.start import Start
from headrace.engine.driver_worker import why
from headrace.errors import HeadraceError, InputError
from headrace.sources.spark_frames import SparkSource
from headrace.sources.spark_rows import STORED, RowsWriter

_PATIENCE = 30.0  # seconds until a driver that has lost the folder lets its inputs go
_POLL = 0.1  # seconds


class SparkInputs:
    """All DataFrames that one run reads."""

    def __init__(self, start: Start, spark: SparkSession, say: Callable[[str], None]) -> None:
        self._spark, self._say = spark, say
        latest = start.log.latest()
        over = latest is not None and latest.ended
        sources = () if over else start.bundle.sources.values()
        self._inputs = [_FrameFeed(s) for s in sources if isinstance(s, SparkSource)]
        self._over = threading.Event()

    def first(self) -> None:
        """Store what must be there before the first epoch, and begin to store what follows."""
        for feed in self._inputs:
            feed.source.store.begin()
            self._lock(feed)
            feed.source.store.sweep()
            if feed.source.streaming:
                feed.begin()
                if feed.source.until is not None:
                    feed.finish()
            elif feed.source.store.last < 0:
                self._say(f"storing the rows of input {feed.source.name!r}, a DataFrame")
                with feed.named():
                    feed.store(feed.source.frame, 0)

    def _lock(self, feed: _FrameFeed) -> None:
        end = time.monotonic() + _PATIENCE
        while not feed.source.store.lock():
            if time.monotonic() > end:
                raise InputError(
                    "HR-SPARK-006",
                    f"another process stores the rows of input {feed.source.name!r}",
                    "Stop the other run of this job; then start this one again.",
                )
            time.sleep(_POLL)

    def check(self) -> None:
        """Raise what has gone wrong since."""
        for feed in self._inputs:
            feed.check()

    def catch_up(self) -> None:
        """Return when everything is stored that Spark can read now."""
        for feed in self._inputs:
            if feed.query is not None and feed.query.isActive:
                with suppress(Exception):  # `check` says what has failed
                    feed.query.processAllAvailable()
        self.check()

    def close(self) -> None:
        """Store no more; a batch that is under way is repeated at the next start."""
        for feed in self._inputs:
            feed.close()


class _FrameFeed:
    """One DataFrame, and the query that reads it if it is a streaming one."""

    def __init__(self, source: SparkSource) -> None:
        self.source = source
        self.query: Any = None
        self._failed: HeadraceError | None = None
        self._closed = False

    def store(self, frame: Any, number: int) -> None:
        """Store the rows of a batch, unless they are stored."""
        store = self.source.store
        if self._closed:  # what is not stored must not count as done
            raise RuntimeError("the run is over")
        if number <= store.last:
            return
        write = RowsWriter(str(store.rows), self.source.schema)
        plain = frame.toDF(*(f"c{i}" for i in range(len(frame.columns))))  # else a.b is b in a
        answers = plain.mapInArrow(write, STORED).collect()
        store.add(number, [(a.file, a.n, a.size) for a in answers])

    def begin(self) -> None:
        """Start the query; what it has stored before is not stored again."""

        def batch(frame: Any, number: int) -> None:
            try:
                self.store(frame, number)
            except BaseException as cause:  # Spark gets a short text: it searches it for errors
                failed = cause if isinstance(cause, HeadraceError) else self._error(cause)
                if not self._closed:
                    self._failed = failed
                raise RuntimeError(failed.message) from None

        name = f"headrace_input_{uuid.uuid4().hex[:12]}"
        with self.named():
            writer = self.source.frame.writeStream.foreachBatch(batch).queryName(name)
            place = f"file://{self.source.store.checkpoint}"
            writer = writer.option("checkpointLocation", place)
            if self.source.until is not None:
                writer = writer.trigger(availableNow=True)
            self.query = writer.start()

    def finish(self) -> None:
        """Wait until all is stored that was there when the query began."""
        with self.named():
            self.query.awaitTermination()

    def check(self) -> None:
        if self._failed is not None:
            raise self._failed
        if self.query is None or self._closed or self.query.isActive:
            return
        error = self.query.exception()
        if error is not None:
            raise self._error(error)
        if self.source.until is None:
            raise InputError(
                "HR-SPARK-003",
                f"the query of input {self.source.name!r} was stopped, and the job with it",
                "Nothing is lost: start the job again. To stop a job: run.stop().",
            )

    def named(self) -> _FailuresOf:
        return _FailuresOf(self)

    def _error(self, cause: BaseException) -> InputError:
        return InputError(
            "HR-SPARK-003",
            f"Spark cannot compute the rows of input {self.source.name!r}: {why(cause)}",
            "What was stored of it before stays in the job's folder. Correct the cause and start "
            "the job again.",
        )

    def close(self) -> None:
        self._closed = True
        with suppress(Exception):  # Spark may be gone
            if self.query is not None and self.query.isActive:
                self.query.stop()
        self.source.store.unlock()


class _FailuresOf:
    """What Spark raises, as an error of the input."""

    def __init__(self, feed: _FrameFeed) -> None:
        self._feed = feed

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, cause: BaseException | None, trace: object) -> None:
        if isinstance(cause, Exception) and not isinstance(cause, HeadraceError):
            raise self._feed._failed or self._feed._error(cause) from cause
