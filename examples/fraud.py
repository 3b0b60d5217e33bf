"""Card fraud: a small payment, a large one abroad within 10 minutes, and no PIN afterwards.

Payments come from the topic `payments`: fill it with `python -m examples.fraud`, then
`headrace run examples/fraud.py`. Everything follows from a seed, and it is known what is planted.
"""

import random
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

import headrace as hr

SEED, CARDS, EACH = 11, 400, 12
MINUTE = timedelta(minutes=1)
# (minutes to the large payment, abroad, minutes to the PIN or none), and how often it happens
FRAUD = (4, True, None)
STORIES = [FRAUD, (4, False, None), (11, True, None), (4, True, 3), (None, True, None)]
WEIGHTS = [3, 3, 2, 3, 2]


@dataclass
class Payment:
    card: str
    amount: float
    country: str
    pin: bool
    at: datetime


def payments(seed=SEED, begin=datetime(2026, 1, 1, tzinfo=UTC)):
    """Payments, up to 5 s out of order, and the frauds among them: (card, small, large)."""
    rng, made, frauds = random.Random(seed), [], set()
    for number in range(CARDS):
        card, at = f"card{number}", begin + rng.uniform(0, 60) * MINUTE
        for _ in range(EACH):
            at += rng.uniform(25, 60) * MINUTE  # a story is over before the next payment
            if rng.random() > 0.1:
                made.append(Payment(card, rng.uniform(2, 400), "IN", rng.random() < 0.5, at))
                continue
            wait, abroad, pin = story = rng.choices(STORIES, WEIGHTS)[0]
            made.append(Payment(card, 0.5, "IN", False, at))
            if wait is None:
                continue
            large = at + wait * MINUTE
            made.append(Payment(card, 900.0, "FR" if abroad else "IN", False, large))
            if pin is not None:
                made.append(Payment(card, 20.0, "FR", True, large + pin * MINUTE))
            if story == FRAUD:
                frauds.add((card, at, large))
    made.sort(key=lambda p: p.at + rng.uniform(0, 5) * timedelta(seconds=1))
    return made, frauds


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
    log = hr.EmbeddedLog()
    if "payments" not in log.topics():
        log.create("payments", schema=Payment)
    log.append("payments", [asdict(payment) for payment in payments()[0]])
