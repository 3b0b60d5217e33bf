"""Views of ten pages, two of which fail for a while: python -m examples.data.page_views

Which pages fail, and when, is known, so it is known what the alerts should say.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from examples.data.playing import BEGIN, SEED, disorder, fill, line, topic

import headrace as hr
from headrace.inspect.progress import Progress

PAGES = {f"/page/{i}": (f"author{i % 4}@example.org", 8 / (i + 1)) for i in range(10)}  # a second
MINUTES = 10
CUT = 0.002  # of the records come cut off


@dataclass(frozen=True)
class Outage:
    page: str
    start: int  # seconds after the beginning
    end: int


OUTAGES = [Outage("/page/1", 130, 260), Outage("/page/3", 300, 420)]


def status(rng: random.Random, page: str, second: float) -> int:
    ill = any(o.page == page and o.start <= second < o.end for o in OUTAGES)
    if rng.random() < (0.6 if ill else 0.01):
        return rng.choice([500, 503])
    return rng.choices([200, 304, 404], [90, 6, 4])[0]


def views(seed: int = SEED) -> Iterator[bytes]:
    rng = random.Random(seed)
    sent = []
    for page, (author, rate) in PAGES.items():
        second = rng.expovariate(rate)
        while second < 60 * MINUTES:
            visitor = f"v{int(rng.paretovariate(0.5)) % 5_000}"
            record = line(second, page=page, author=author, visitor=visitor,
                          status=status(rng, page, second))  # fmt: skip
            sent.append((second, record[:40] if rng.random() < CUT else record))
            second += rng.expovariate(rate)
    yield from disorder(rng, sent)


def topics() -> dict[str, Iterator[bytes]]:
    return {"views": views()}


def report(progress: Progress) -> None:
    outputs = progress.outputs
    print(f"archive    {hr.read_output('.headrace/page-views/archive').num_rows:,} views")
    print(f"dashboard  {outputs['dashboard.write']:,} counts")
    for row in sorted(topic("alerts"), key=lambda row: row["at"]):
        after, what = row["at"].timestamp() - BEGIN, "fails" if row["failing"] else "is well again"
        print(f"alert      {row['page']} {what} after {after:.0f} s ({row['share']:.0%} failed)")
    for outage in OUTAGES:
        print(f"           {outage.page} was ill from {outage.start} s to {outage.end} s")
    print(f"mails      {outputs['mails.write']:,}")
    print(f"bad        {hr.read_output('job/dead').num_rows:,} dead letters")


if __name__ == "__main__":
    fill(topics())
