"""Lines of words, some more often than others: to whoever connects, or into a topic.

    python -m examples.lines --port 9999
    python -m examples.lines --topic lines

Everything follows from a seed.
"""

from __future__ import annotations

import argparse
import random
import socket
import time
from collections.abc import Iterator
from itertools import islice

from headrace import EmbeddedLog

WORDS = ["the", "stream", "of", "words", "goes", "on", "and", "nobody", "counts", "them", "twice"]
SEED = 7


def lines(seed: int = SEED) -> Iterator[str]:
    """Lines without end; the n-th word comes about 1/n as often as the first."""
    rng = random.Random(seed)
    weights = [1 / (i + 1) for i in range(len(WORDS))]
    while True:
        yield " ".join(rng.choices(WORDS, weights, k=rng.randint(3, 9))).capitalize() + "."


def serve(port: int, rate: float) -> None:
    """Send lines to one client after the other."""
    with socket.create_server(("127.0.0.1", port)) as listening:
        print(f"lines for whoever connects to localhost:{listening.getsockname()[1]}", flush=True)
        while True:
            client, _ = listening.accept()
            with client:
                try:
                    for line in lines():
                        client.sendall(f"{line}\n".encode())
                        time.sleep(1 / rate)
                except OSError:  # it hung up
                    continue


def fill(topic: str, rate: float, total: int | None = None) -> None:
    """Append lines to a topic of the log."""
    log = EmbeddedLog()
    if topic not in log.topics():
        log.create(topic)
    for line in islice(lines(), total):
        log.append(topic, [line.encode()])
        time.sleep(1 / rate)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int)
    where.add_argument("--topic")
    parser.add_argument("--rate", type=float, default=10, help="lines a second")
    options = parser.parse_args()
    if options.topic:
        fill(options.topic, options.rate)
    else:
        serve(options.port, options.rate)


if __name__ == "__main__":
    main()
