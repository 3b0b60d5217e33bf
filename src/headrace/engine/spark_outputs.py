"""Outputs that need the driver's session: the process that commits asks, the driver delivers.

It asks as a task does (`spark_batches.py`): the rows of an epoch are in a file in the job's folder,
and it waits for the answer. None of it is durable: an epoch that was not answered for is published
again at the next start. Nobody waits for a driver that has ended.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.driver.start import Start
from headrace.engine.driver_worker import DriverThread, clean_folder, why
from headrace.engine.session import activate
from headrace.engine.spark_batches import (
    FAILURE,
    REQUEST,
    RESULT,
    read_rows,
    replace_file,
    write_rows,
)
from headrace.errors import HeadraceError, OutputError, RunError
from headrace.sinks import Sink
from headrace.sinks.on_driver import DriverOutput
from headrace.sinks.own import OwnSink
from headrace.state.faults import point

FOLDER = "deliveries"
_ABOUT = b"headrace.delivery"
_POLL = 0.01  # seconds
_LONGEST = 0.05  # seconds between two looks


@dataclass(frozen=True)
class AskedDelivery:
    """In the process that commits: asks the driver to deliver."""

    folder: str
    token: int
    output: str
    driver: int  # its process

    def __call__(self, rows: pa.Table, producer: str, epoch: int) -> None:
        place = Path(self.folder) / f"{self.token}-{uuid.uuid4().hex}"
        about = {"output": self.output, "producer": producer, "epoch": epoch}
        asked = rows.replace_schema_metadata({_ABOUT: json.dumps(about)})
        write_rows(place.with_suffix(REQUEST), asked)
        point("sink.driver.asked")
        try:
            self._await(place, epoch)
        finally:
            for suffix in (REQUEST, RESULT, FAILURE):
                place.with_suffix(suffix).unlink(missing_ok=True)

    def _await(self, place: Path, epoch: int) -> None:
        pause = _POLL
        while True:
            waiting = place.with_suffix(REQUEST).exists()  # it goes when the answer is there
            if place.with_suffix(RESULT).exists():
                return
            if place.with_suffix(FAILURE).exists():
                failed = json.loads(place.with_suffix(FAILURE).read_text())
                raise OutputError(failed["code"], failed["fact"], failed["hint"])
            if not waiting or not _alive(self.driver):
                raise RunError(
                    "HR-RUN-012",
                    f"the driver does not deliver epoch {epoch} to output {self.output!r}",
                    "It was stopped, or could not write to the job's folder. Nothing is lost: "
                    "start the job again.",
                )
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class SparkOutputs:
    """All outputs of one run that the driver delivers."""

    def __init__(self, start: Start, spark: SparkSession, say: Callable[[str], None]) -> None:
        self._spark, self._sinks = spark, start.bundle.sinks
        self._folder, self._token = Path(start.log.folder) / FOLDER, start.token
        self._outputs = {
            name: sink.output
            for name, sink in self._sinks.items()
            if isinstance(sink, OwnSink) and isinstance(sink.output, DriverOutput)
        }
        self._worker = DriverThread(spark, "headrace-deliveries", say)

    def first(self) -> Mapping[str, Sink]:
        """Be ready to deliver; the outputs that other processes must have to ask."""
        if self._outputs or self._folder.is_dir():
            clean_folder(self._folder, self._token)
        if self._outputs:
            self._worker.begin(self._deliver_all, _POLL)
        return {name: self._asking(name) for name in self._sinks}

    def _asking(self, name: str) -> Sink:
        sink, output = self._sinks[name], self._outputs.get(name)
        if output is None:
            return sink
        assert isinstance(sink, OwnSink)
        ask = AskedDelivery(str(self._folder), self._token, name, os.getpid())
        return sink.delivering_by(output.asking(ask))

    def close(self) -> None:
        """Deliver no more."""
        self._worker.close()

    def _deliver_all(self) -> None:
        requests = self._folder.glob(f"{self._token}-*{REQUEST}")
        self._worker.answer_each(requests, self._answer)

    def _answer(self, request: Path) -> None:
        rows = read_rows(request)
        about = json.loads(rows.schema.metadata[_ABOUT])
        name, epoch = about["output"], about["epoch"]
        output = self._outputs[name]
        try:
            activate(self._spark)
            with self._worker.tagged():
                output.on_driver(rows.replace_schema_metadata(), about["producer"], epoch)
            point("sink.driver.delivered")
        except BaseException as error:  # a function may call sys.exit
            if self._worker.over:  # it was cancelled: the epoch is published at the next start
                return
            failed = error if isinstance(error, HeadraceError) else output.failed(epoch, why(error))
            fact = f"output {name!r}: {failed.message}"
            text = json.dumps({"code": failed.code, "fact": fact, "hint": failed.hint or ""})
            replace_file(request.with_suffix(FAILURE), lambda path: path.write_text(text))
        else:
            replace_file(request.with_suffix(RESULT), lambda path: path.write_text(""))
