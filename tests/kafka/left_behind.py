"""A program whose broker stops before its clients are closed; run by test_broker_gone.py."""

from __future__ import annotations

import sys
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from tools.kafka.broker import Broker

import headrace as hr
from headrace.testing import Driver


def main(folder: Path) -> None:
    broker = Broker(folder / "broker")
    broker.start()
    admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0, "error_cb": print})
    for name in ("in", "out"):
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    del admin
    place = f"kafka://{broker.address}"
    producer = hr.Producer(place)
    producer.send("in", {"n": 1})
    producer.flush()
    job = hr.Job("left behind")
    read = job.read(f"{place}/in", schema="n bigint", name="in", group="lag")
    read.write(f"{place}/out", name="out")
    driver = Driver(job, folder / "job", until="now")
    driver.drain()
    consumer = hr.Consumer("out", group="readers", log=place)
    found = len(list(consumer.records("2s")))
    broker.stop()
    assert consumer.poll("2s") is None
    print(f"{found} record")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
