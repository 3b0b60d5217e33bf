"""Payments of 400 cards, with frauds among them: python -m examples.data.fraud"""

from __future__ import annotations

import random
from collections.abc import Iterator

from examples.data.playing import BEGIN, SEED, disorder, fill, line

import headrace as hr
from headrace.inspect.progress import Progress

CARDS, EACH, MINUTE = 400, 12, 60
# (minutes to the large payment, abroad, minutes to the PIN or none), and how often it happens
FRAUD = (4, True, None)
STORIES = [FRAUD, (4, False, None), (11, True, None), (4, True, 3), (None, True, None)]
WEIGHTS = [3, 3, 2, 3, 2]

Fraud = tuple[str, float, float]  # the card, and the seconds of the small payment and the large


def story(rng: random.Random, card: str, second: float) -> tuple[list[tuple[float, bytes]], bool]:
    """A small payment, and what may follow; whether that is a fraud."""

    def paid(later: float, amount: float, country: str, pin: bool) -> tuple[float, bytes]:
        fields = {"card": card, "amount": amount, "country": country, "pin": pin}
        return second + later, line(second + later, **fields)

    wait, abroad, pin = chosen = rng.choices(STORIES, WEIGHTS)[0]
    made = [paid(0, 0.5, "IN", False)]
    if wait is not None:
        made.append(paid(wait * MINUTE, 900.0, "FR" if abroad else "IN", False))
        if pin is not None:
            made.append(paid((wait + pin) * MINUTE, 20.0, "FR", True))
    return made, chosen == FRAUD


def planted(seed: int = SEED) -> tuple[list[bytes], set[Fraud]]:
    """The payments as they arrive, and the frauds among them."""
    rng, sent, frauds = random.Random(seed), [], set()
    for number in range(CARDS):
        card, second = f"card{number}", rng.uniform(0, 60) * MINUTE
        for _ in range(EACH):
            second = round(second + rng.uniform(25, 60) * MINUTE, 3)  # after the last story
            if rng.random() > 0.1:
                fields = {"amount": rng.uniform(2, 400), "country": "IN", "pin": rng.random() < 0.5}
                sent.append((second, line(second, card=card, **fields)))
                continue
            made, is_fraud = story(rng, card, second)
            sent += made
            if is_fraud:
                frauds.add((card, second, second + FRAUD[0] * MINUTE))
    return list(disorder(rng, sent)), frauds


def topics() -> dict[str, Iterator[bytes]]:
    return {"payments": iter(planted()[0])}


def report(progress: Progress) -> None:
    found = hr.read_output(".headrace/fraud/found").sort_by("large_at").to_pylist()
    read, known = progress.total["read"], len(planted()[1])
    print(f"{read:,} payments, {len(found)} frauds; {known} were planted")
    for row in found[:3]:
        minutes = int(row["large_at"].timestamp() - BEGIN) // MINUTE
        when = f"{minutes // 60} h {minutes % 60:02} min"
        print(f"  {row['card']}: {row['amount']:g} abroad, after {when}")


if __name__ == "__main__":
    fill(topics())
