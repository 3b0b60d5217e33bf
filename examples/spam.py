"""Spam: messages cleaned by a table of senders that others report, then counted by topic.

Messages come from the topic `messages`. The table is a Parquet file that a batch job writes anew
now and then; the job looks at it every second. `python -m examples.spam` plays it, and asks for
the top ten of five minutes while it runs. Or fill the topic and write the table with
`python -m examples.data.spam`, then `headrace run examples/spam.py`, and ask in another terminal:
`headrace state get examples/spam.py freqs --since 21:00 --until 21:05 --top messages --limit 10`.
"""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import headrace as hr
from headrace import col

TABLE = Path(".headrace/spam/senders.parquet").absolute()
REPORTS = 3  # from so many on a sender is taken for a spammer


@dataclass
class Message:
    sender: str
    topic: str
    text: str
    at: datetime


job = hr.Job("spam")
messages = job.read("log:messages", schema=Message, format="json", time="at", delay="2s")
reported = hr.table_file(TABLE, schema="sender string, reports bigint")

known = messages.lookup(reported, on="sender", refresh="1s", name="reported")
clean = known.where(col("reports").is_null() | (col("reports") < REPORTS), name="clean")

freqs = (
    clean.key_by("topic")
    .window(hr.sliding("15m", every="1m"))
    .agg(senders=hr.count_distinct("sender"), messages=hr.count(), name="freqs")
)

freqs.write("log:freqs")
freqs.late.write("files:.headrace/spam/late")

if __name__ == "__main__":
    from examples.data import playing, spam

    spam.write(spam.BEFORE, TABLE)
    playing.play(job, spam, during=partial(spam.live, table=TABLE))
