"""make kafka: a Kafka broker on this machine until Ctrl-C; its data stay in .headrace/kafka."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from tools.kafka.broker import Broker, NoBroker
from tools.kafka.jars import ROOT, VERSION


def _topic(text: str) -> tuple[str, int]:
    """ "readings:4" is a topic of four partitions, "readings" one of one."""
    name, _, partitions = text.partition(":")
    return name, int(partitions or 1)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kafka", description=__doc__)
    parser.add_argument("--port", type=int, help="9092 if not named; 0: any free one")
    parser.add_argument("--folder", type=Path, default=ROOT / ".headrace" / "kafka")
    parser.add_argument(
        "--topic", action="append", default=[], type=_topic, metavar="NAME[:PARTITIONS]",
        help="a topic to make, if it is missing; may be repeated",
    )  # fmt: skip
    asked = parser.parse_args()
    known = (asked.folder / "server.properties").exists()  # a folder keeps its port
    port = None if known else 9092 if asked.port is None else asked.port or None
    stop = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    print(f"headrace: starting Kafka {VERSION} (the first time: fetching 44 MB)", flush=True)
    try:
        with Broker(asked.folder.resolve(), port) as broker:
            broker.make_topics(dict(asked.topic))
            print(f"headrace: Kafka is at {broker.address}; its data are in {asked.folder}")
            topic = asked.topic[0][0] if asked.topic else "TOPIC"
            print(f'  job.read("kafka://{broker.address}/{topic}", ...)')
            print("Ctrl-C stops it.", flush=True)
            while not stop.wait(1):
                if not broker.alive:
                    print("headrace: Kafka has ended; see broker.log there", file=sys.stderr)
                    return 1
    except NoBroker as cause:
        print(f"headrace: {cause}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
