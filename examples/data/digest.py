"""Updates for thirty members of a network, over two days: python -m examples.data.digest"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

from examples.data.playing import BEGIN, SEED, disorder, fill, line, topic

from headrace.inspect.progress import Progress

MEMBERS = [f"member{i:02}" for i in range(30)]
WHAT = {
    "urgent": ["a message from {who}", "{who} accepts your offer"],
    "normal": ["{who} commented on your post", "{who} wants to connect", "{who} mentioned you"],
    "low": ["{who} has a birthday", "{who} changed jobs"],
}
OFTEN = {"urgent": 1, "normal": 6, "low": 5}
HOURS = 48
BUSY = 40  # updates a day of the busiest member


def moments(rng: random.Random, a_day: float) -> Iterator[float]:
    """Seconds at which something happens to a member: alone, or many things at once."""
    second = rng.expovariate(a_day / 86_400)
    while second < HOURS * 3_600:
        yield second
        if rng.random() < 0.3:  # a conversation
            yield from (second + rng.uniform(0, 600) for _ in range(rng.randint(2, 9)))
        second += rng.expovariate(a_day / 86_400)


def updates(seed: int = SEED) -> Iterator[bytes]:
    rng = random.Random(seed)
    sent = []
    for number, member in enumerate(MEMBERS):
        for second in moments(rng, BUSY / (number + 1)):
            (priority,) = rng.choices([*OFTEN], [*OFTEN.values()])
            text = rng.choice(WHAT[priority]).format(who=rng.choice(MEMBERS).capitalize())
            sent.append((second, line(second, member=member, priority=priority, text=text)))
    yield from disorder(rng, sent)


def topics() -> dict[str, Iterator[bytes]]:
    return {"updates": updates()}


def report(progress: Progress) -> None:
    mails = topic("mails")
    print(f"{progress.total['read']:,} updates became {len(mails):,} mails")
    member, many = Counter(mail["member"] for mail in mails).most_common(1)[0]
    print(f"\nthe last three of {many} to {member}:")
    for mail in sorted((m for m in mails if m["member"] == member), key=lambda m: m["at"])[-3:]:
        minutes = int(mail["at"].timestamp() - BEGIN) // 60
        print(f"\n  after {minutes // 60} h {minutes % 60:02} min: {mail['subject']}")
        for text in mail["lines"]:
            print(f"    {text}")
        if mail["more"]:
            print(f"    and {mail['more']} more")


if __name__ == "__main__":
    fill(topics())
