"""Kafka to windows of 10 s to Kafka, with Bytewax's own connector and windows.

Its event clock lets the watermark follow the clock of the machine, too, which goes on while rows of
the past are read; it waits long enough here that no row is late, so windows close at the end.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as w
from bytewax.connectors.kafka import KafkaSink, KafkaSinkMessage, KafkaSource, KafkaSourceMessage
from bytewax.dataflow import Dataflow
from confluent_kafka import OFFSET_BEGINNING

from bench.flows.stamps import ABOUT, stamp

BROKERS = [ABOUT["brokers"]]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_BATCH = 1_000  # records, the connector's own default
Folded = tuple[int, float]


def decoded(message: KafkaSourceMessage[Any, Any]) -> tuple[str, dict[str, Any]]:
    row = json.loads(message.value)
    return row["sensor"], row


def at(row: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(row["at"])


def added(folded: Folded, row: dict[str, Any]) -> Folded:
    return folded[0] + 1, folded[1] + row["celsius"]


def merged(a: Folded, b: Folded) -> Folded:
    return a[0] + b[0], a[1] + b[1]


def record(window: tuple[str, tuple[int, Folded]]) -> KafkaSinkMessage[Any, Any]:
    sensor, (number, (n, total)) = window
    value = {"sensor": sensor, "start": number * 10_000, "n": n, "total": total}
    return KafkaSinkMessage(sensor.encode(), json.dumps(value).encode())


class Source(KafkaSource):
    """The connector's own; says when its partitions are opened."""

    def build_part(self, *args: Any, **kwargs: Any) -> Any:
        stamp("began")
        return super().build_part(*args, **kwargs)


class Sink(KafkaSink):
    """The connector's own; says when everything is delivered."""

    def build(self, *args: Any, **kwargs: Any) -> Any:
        part = super().build(*args, **kwargs)
        close = part.close

        def closed() -> None:
            close()
            stamp("ended")

        part.close = closed
        return part


flow = Dataflow("windows")
records = op.input(
    "records", flow,
    Source(BROKERS, [ABOUT["topic"]], tail=False, starting_offset=OFFSET_BEGINNING,
           batch_size=_BATCH),
)  # fmt: skip
clock = w.EventClock(at, wait_for_system_duration=timedelta(hours=1))
windower = w.TumblingWindower(length=timedelta(seconds=10), align_to=_EPOCH)
windows = w.fold_window(
    "windows", op.map("decoded", records, decoded), clock, windower,
    lambda: (0, 0.0), added, merged,
)  # fmt: skip
op.output("out", op.map("record", windows.down, record), Sink(BROKERS, ABOUT["out"]))
