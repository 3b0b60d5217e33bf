"""Posts with hashtags, written to the topic `posts` as JSON: python -m examples.posts

Some tags are always there; each burst makes another one rise and fall, so it is known what
should trend and when. Posts come up to a second out of order. Everything follows from a seed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from headrace import EmbeddedLog

USUAL = {"news": 5, "music": 4, "food": 3, "cats": 3, "travel": 2, "books": 1, "garden": 1}
PER_SECOND = 4
SEED = 7


@dataclass(frozen=True)
class Burst:
    tag: str
    start: int  # seconds after the beginning
    end: int


BURSTS = [Burst("storm", 600, 1_020), Burst("goal", 1_200, 1_380)]
MINUTES = 30


def posts(rng: random.Random, begin: float, second: int) -> Iterator[bytes]:
    """What is posted in one second."""
    weights = {**USUAL, **{b.tag: 12 for b in BURSTS if b.start <= second < b.end}}
    for _ in range(rng.randint(1, 2 * PER_SECOND - 1)):
        chosen = rng.choices([*weights], [*weights.values()], k=rng.choice([0, 1, 1, 2]))
        text = " ".join(["look at this", *(f"#{tag.capitalize()}" for tag in chosen)])
        at = datetime.fromtimestamp(begin + second - rng.uniform(0, 1), UTC)
        yield json.dumps({"text": text, "at": at.isoformat(timespec="milliseconds")}).encode()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--minutes", type=int, default=MINUTES)
    parser.add_argument("--speed", type=float, default=20, help="seconds of posts per second")
    options = parser.parse_args()
    log, rng = EmbeddedLog(), random.Random(SEED)
    if "posts" not in log.topics():
        log.create("posts")
    begin = time.time() - options.minutes * 60  # so that the last are of now
    for second in range(options.minutes * 60):
        log.append("posts", list(posts(rng, begin, second)))
        time.sleep(1 / options.speed)


if __name__ == "__main__":
    main()
