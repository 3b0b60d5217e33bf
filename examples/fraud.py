"""Card fraud: a small payment, a large one abroad within 10 minutes, and no PIN afterwards.

Payments come from the topic `payments`. `python -m examples.fraud` plays it; or fill the topic
with `python -m examples.data.fraud`, then `headrace run examples/fraud.py`.
"""

from dataclasses import dataclass
from datetime import datetime

import headrace as hr


@dataclass
class Payment:
    card: str
    amount: float
    country: str
    pin: bool
    at: datetime


def abroad(row, match):
    return row.country != match["small"][-1].country


job = hr.Job("fraud")
rows = job.read("log:payments", schema=Payment, time="at", delay="10s", idle="1m")
fraud = (
    hr.pattern("small", "amount < 1")
    .then("large", "amount > 500", abroad)
    .then_not("confirmed", "pin", within="10m")
    .within("10m")
    .skip_past_last()
)
found = rows.key_by("card").match(
    fraud, select={"small_at": "small.at", "large_at": "large.at", "amount": "large.amount"}
)
found.write("files:.headrace/fraud/found")
found.write("console:", name="alarms")

if __name__ == "__main__":
    from examples.data import fraud as data
    from examples.data import playing

    playing.play(job, data)
