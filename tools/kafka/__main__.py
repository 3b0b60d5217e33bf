"""make kafka: a Kafka broker on this machine until Ctrl-C; its data stay in .headrace/kafka."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from pathlib import Path

from tools.kafka.broker import Broker, NoBroker
from tools.kafka.jars import ROOT, VERSION


def main() -> int:
    parser = argparse.ArgumentParser(prog="make kafka", description=__doc__)
    parser.add_argument("--port", type=int, help="9092 if not named; 0: any free one")
    parser.add_argument("--folder", type=Path, default=ROOT / ".headrace" / "kafka")
    asked = parser.parse_args()
    known = (asked.folder / "server.properties").exists()  # a folder keeps its port
    port = None if known else 9092 if asked.port is None else asked.port or None
    stop = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    print(f"headrace: starting Kafka {VERSION} (the first time: fetching 44 MB)", flush=True)
    try:
        with Broker(asked.folder.resolve(), port) as broker:
            print(f"headrace: Kafka is at {broker.address}; its data are in {asked.folder}")
            print(f'  job.read("kafka://{broker.address}/TOPIC", ...)')
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
