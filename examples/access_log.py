"""Access log of a web server: requests by status, page and country each minute; errors alerted.

The topic `access` holds lines in Apache's combined format, as a log shipper sends them: JSON with
the line, its server and its time. A line that is not in that format is a dead letter.
`python -m examples.access_log` plays it; or fill the topic with
`python -m examples.data.access_log`, then `headrace run examples/access_log.py --until end`.
"""

from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa

import headrace as hr
from headrace import col

QUOTED = r'"((?:[^"\\]|\\.)*)"'  # with \" inside
LINE = rf'^(\S+) \S+ \S+ \[([^\]]+)\] "([A-Z]+) (\S+) HTTP/[0-9.]+" ([0-9]{{3}}) ([0-9]+|-) {QUOTED} {QUOTED}$'  # noqa: E501
NETWORKS = pa.table(  # documentation prefixes, by the first three numbers of an address
    {"network": ["192.0.2", "198.51.100", "203.0.113"], "country": ["SE", "IN", "BR"]}
)


@dataclass
class Shipped:
    server: str
    line: str
    at: datetime


def part(group: int) -> hr.Expr:
    """A group of the pattern; of a line that does not match, an empty text."""
    return col("line").regexp_extract(LINE, group)


job = hr.Job("access-log")
shipped = job.read("log:access", schema=Shipped, format="json", time="at", delay="2s")
requests = shipped.select(
    "at",
    "server",
    page=part(4).regexp_replace("[?#].*", ""),
    status=part(5).cast("int"),  # fails on an empty text: a dead letter, with the line in it
    bytes=hr.coalesce(part(6).try_cast("bigint"), 0),  # "-" is none
    network=part(1).regexp_extract("^([0-9]+[.][0-9]+[.][0-9]+)[.]", 1),
)
located = requests.lookup(NETWORKS, on="network", name="located")
countries = located.with_columns(country=hr.coalesce("country", hr.lit("other")))

minute = hr.tumbling("1m")
counted = {"requests": hr.count(), "bytes": hr.sum("bytes")}
by_status = requests.key_by("status").window(minute).agg(**counted)
by_country = countries.key_by("country").window(minute).agg(**counted)
by_page = requests.where("status < 400").key_by("page").window(minute).agg(**counted)

# Alerts: a server that fails a fifth of a minute's requests, looked at every 10 seconds.
failed = hr.sum(hr.when(col("status") >= 500, 1).otherwise(0))
health = requests.key_by("server").window(hr.sliding("1m", every="10s"))
alerts = health.agg(requests=hr.count(), failed=failed).where(
    "failed >= 10 and failed * 5 > requests"
)

by_status.write("log:by-status")
by_country.write("log:by-country")
by_page.top(3, by="requests").write("log:top-pages")
alerts.write("log:alerts")
by_status.late.write("files:.headrace/access-log/late")

if __name__ == "__main__":
    from examples.data import access_log, playing

    playing.play(job, access_log)
