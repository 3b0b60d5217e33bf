"""Lines of Wikipedia's recent changes, a few of them garbled: python -m examples.data.wikipedia"""

from __future__ import annotations

import random
from collections.abc import Iterator

from examples.data.playing import SEED, disorder, fill, line, topic

import headrace as hr
from headrace.inspect.progress import Progress

CHANNELS = {"#en.wikipedia": 6.0, "#de.wikipedia": 2.5, "#it.wikipedia": 1.5}  # edits a second
TITLES = ["Water", "Turbine", "Headrace", "Mill race", "Penstock", "Sluice", "Tailrace", "Weir"]
SPACES = ["", "", "", "", "Talk:", "User talk:", "Category:", "Talkative:"]
USERS = ["Ada", "Grace * Hopper", "Zuse", "192.0.2.17", "CleanerBot"]
MINUTES = 5
GARBLED = 0.02


def edit(rng: random.Random, channel: str) -> str:
    """One line: [[title]] flags url * user * (+bytes) summary."""
    user = rng.choice(USERS)
    flags = "".join(f for f, often in (("!", 0.2), ("N", 0.1), ("M", 0.3)) if rng.random() < often)
    flags += "B" if user.endswith("Bot") else ""
    title = rng.choice(SPACES) + rng.choice(TITLES) + f" {rng.randint(1, 40)}"
    url = f"https://{channel[1:]}.org/w/index.php?diff={rng.randint(10**6, 10**7)}"
    size = round(rng.gauss(20, 120))
    summary = rng.choice(["", "typo", "/* History */ added (see talk)", "[[revert]] * again *"])
    return f"[[{title}]] {flags} {url} * {user} * ({size:+d}) {summary}".strip()


def garble(rng: random.Random, text: str) -> str:
    """Cut off, without a size, or no edit at all."""
    return rng.choice([text[: text.index(" * ")], text.replace("(", "", 1), "joined the channel"])


def edits(seed: int = SEED) -> Iterator[bytes]:
    rng = random.Random(seed)
    sent = []
    for channel, rate in CHANNELS.items():
        second = rng.expovariate(rate)
        while second < 60 * MINUTES:
            text = edit(rng, channel)
            text = garble(rng, text) if rng.random() < GARBLED else text
            sent.append((second, line(second, channel=channel, line=text)))
            second += rng.expovariate(rate)
    yield from disorder(rng, sent)


def topics() -> dict[str, Iterator[bytes]]:
    return {"edits": edits()}


def report(progress: Progress) -> None:
    last = {row["channel"]: row for row in topic("wikipedia-stats")}
    dead = hr.read_output("job/dead").num_rows
    columns = ("edits", "bytes", "titles", "minor", "new", "bot", "unpatrolled", "talk")
    print("the last 10 s ", *(f"{c:>7.7}" for c in columns), "  since the beginning")
    for name, row in sorted(last.items()):
        figures = (f"{row[c]:>7}" for c in columns)
        total = f"  {row['all_edits']:,} edits, {row['all_bytes']:+,} bytes"
        print(f"{name:<14}", *figures, total)
    print(f"\n{progress.total['read']:,} lines, of which {dead} were not edits")


if __name__ == "__main__":
    fill(topics())
