"""Wikipedia edits: statistics of each channel, every 10 seconds and since the beginning.

Raw lines come from the topic `edits`, as Wikipedia's chat bots write them. A line that cannot be
parsed is a dead letter. `python -m examples.wikipedia` plays it; or fill the topic with
`python -m examples.data.wikipedia`, then `headrace run examples/wikipedia.py --until end`.
"""

import re
from dataclasses import dataclass
from datetime import datetime

import headrace as hr
from headrace import col

LINE = re.compile(r"\[\[(.+?)\]\] ([!NMB]*) (\S+) \* (.+?) \* \(([+-]\d+)\) ?(.*)")


@dataclass
class Raw:
    channel: str
    line: str
    at: datetime


@dataclass
class Edit:
    channel: str
    title: str
    flags: str
    user: str
    bytes: int
    at: datetime


def parse(raw) -> Edit:
    found = LINE.fullmatch(raw.line)
    if found is None:
        raise ValueError("not the line of an edit")
    title, flags, _, user, size, _ = found.groups()
    return Edit(raw.channel, title, flags, user, int(size), raw.at)


def times(condition):
    """How often a condition is true."""
    return hr.sum(hr.when(condition, 1).otherwise(0))


job = hr.Job("wikipedia")
lines = job.read("log:edits", schema=Raw, format="json", time="at", delay="2s", max_skew="1h")
edits = lines.map(parse, name="edit")

stats = (
    edits.key_by("channel")
    .window(hr.tumbling("10s"))
    .agg(
        edits=hr.count(),
        bytes=hr.sum("bytes"),
        titles=hr.count_distinct("title"),
        minor=times(col("flags").contains("M")),
        new=times(col("flags").contains("N")),
        bot=times(col("flags").contains("B")),
        unpatrolled=times(col("flags").contains("!")),
        talk=times(col("title").rlike("^([A-Za-z]+ )?[Tt]alk:")),
    )
)

# A total is a running sum over the windows, so it costs a row per window, not per edit.
totals = stats.key_by("channel").agg(
    all_edits=hr.sum("edits"), all_bytes=hr.sum("bytes"), unbounded=True
)

totals.write("log:wikipedia-stats")
stats.late.write("files:.headrace/wikipedia/late")

if __name__ == "__main__":
    from examples.data import playing, wikipedia

    playing.play(job, wikipedia)
