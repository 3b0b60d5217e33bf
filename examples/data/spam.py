"""Messages of half an hour, from 20:50, and who was reported for spam: python -m examples.data.spam

Two gangs send spam. One is known from the beginning; the other, which begins at 21:02, is in the
table that comes out at 21:10. Honest senders are reported now and then, too, but seldom.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from examples.data.playing import BEGIN, SEED, Running, disorder, fill, line

from headrace.inspect.progress import Progress

START = datetime.fromtimestamp(BEGIN, UTC).replace(hour=20, minute=50).timestamp() - BEGIN
MINUTES, NEWS = 30, 20  # how long messages are sent; when the new table comes out
TOPICS = ["football", "rain", "trains", "music", "elections", "bread", "bicycles", "chess",
          "rivers", "film", "gardens", "exams", "phones", "books", "coffee"]  # fmt: skip
SENDERS = [f"sender{i:03}" for i in range(200)]
GANGS = {"pills": range(0, MINUTES), "lottery": range(12, MINUTES)}  # minutes in which they send
SIZE = 8  # senders of a gang
RATE = 300  # honest messages a minute; an active gang sends a quarter of that

Table = dict[str, int]
HONEST = {sender: number % 3 for number, sender in enumerate(SENDERS[::10])}
BEFORE: Table = HONEST | {f"pills{i}": 5 for i in range(SIZE)} | {"lottery0": 2}
AFTER: Table = BEFORE | {f"lottery{i}": 3 + i for i in range(SIZE)}


def write(reports: Table, table: Path | str) -> None:
    """Write the table anew, in one stroke: nobody finds half of it."""
    rows = pa.table({"sender": list(reports), "reports": list(reports.values())})
    place = Path(table)
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, place.with_suffix(".new"))
    os.replace(place.with_suffix(".new"), place)


def minute(rng: random.Random, number: int) -> Iterator[tuple[float, bytes]]:
    """What is sent in one minute."""
    likely = [1 / (i + 2) for i in range(len(TOPICS))]
    sent = [(rng.choice(SENDERS), topic) for topic in rng.choices(TOPICS, likely, k=RATE)]
    for gang, active in GANGS.items():
        if number in active:
            sent += [(f"{gang}{rng.randrange(SIZE)}", gang) for _ in range(RATE // 4)]
    for sender, topic in sent:
        second = START + 60 * number + rng.uniform(0, 60)
        yield second, line(second, sender=sender, topic=topic, text=f"about {topic}")


def messages(first: int = 0, last: int = MINUTES, seed: int = SEED) -> Iterator[bytes]:
    rng = random.Random(f"{seed} {first}")
    sent = [record for number in range(first, last) for record in minute(rng, number)]
    yield from disorder(rng, sent)


def topics() -> dict[str, Iterator[bytes]]:
    return {"messages": messages(0, NEWS)}


def show(running: Running, since: str, until: str) -> None:
    top = running.state("freqs").slice(since, until).top(10, by="messages")
    print(f"the top ten from {since} to {until}")
    for row in top.to_pylist():
        print(f"  {row['topic']:<10} {row['messages']:>5} of {row['senders']:>3} senders")
    print()


def live(running: Running, table: Path) -> None:
    """Ask while it runs; then the table comes out anew, more messages come, and ask again."""
    running.catch_up()
    show(running, "21:00", "21:05")
    write(AFTER, table)
    running.rest(1)  # until the job looks at the table again
    fill({"messages": messages(NEWS, MINUTES)})
    running.catch_up()
    show(running, "21:12", "21:17")


def report(progress: Progress) -> None:
    seen = progress.steps["clean"]
    print(f"{seen['in']:,} messages, {seen['in'] - seen['out']:,} of them spam")


if __name__ == "__main__":
    fill(topics())
    write(BEFORE, ".headrace/spam/senders.parquet")
