"""A web of 300 pages, and how it changes afterwards: python -m examples.data.pagerank

Pages prefer to link to pages that many link to. In every round of changes links are made, some of
them to `news`, and others taken away; in a large one new pages come, and one goes with its links.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from examples.data.playing import SEED, Running, fill, line, topic

from headrace.inspect.progress import Progress

Change = tuple[str, str, int]
PAGES, ROUNDS = 300, (1, 1, 20, 3, 20, 1, 20, 1)  # so many of every kind of change
LARGE = 10


class Web:
    """The links that there are; each change is made and returned."""

    def __init__(self, seed: int) -> None:
        self.rng, self.links, self.pages = random.Random(seed), dict[tuple[str, str], None](), 0

    def make(self, src: str, dst: str) -> Iterator[Change]:
        if src != dst and (src, dst) not in self.links:
            self.links[src, dst] = None
            yield src, dst, 1

    def take(self, link: tuple[str, str]) -> Iterator[Change]:
        del self.links[link]
        yield *link, -1

    def page(self) -> Iterator[Change]:
        """A new page, with a few links to those that are there; some have none."""
        self.pages += 1
        for _ in range(self.rng.choice([0, 2, 3, 5, 12]) if self.links else 1):
            yield from self.make(f"page{self.pages:03}", self.popular())

    def popular(self) -> str:
        """Some page, the likelier the more links it has."""
        if not self.links or self.rng.random() < 0.2:
            return f"page{self.rng.randint(0, self.pages):03}"
        return self.rng.choice([*self.links])[1]

    def round(self, size: int) -> Iterator[Change]:
        for _ in range(size):
            yield from self.make(self.popular(), self.popular())
            yield from self.make(self.popular(), "news")
            yield from self.take(self.rng.choice([*self.links]))
        if size > LARGE:
            for _ in range(size):
                yield from self.page()
            leaves = self.popular()
            for link in [link for link in self.links if leaves in link]:
                yield from self.take(link)


def rounds(seed: int = SEED) -> Iterator[list[Change]]:
    """The web itself, then the changes of each round."""
    web = Web(seed)
    yield [change for _ in range(PAGES) for change in web.page()]
    for size in ROUNDS:
        yield list(web.round(size))


def records(changes: list[Change]) -> list[bytes]:
    return [line(i, src=s, dst=d, change=n) for i, (s, d, n) in enumerate(changes)]


def topics() -> dict[str, list[bytes]]:
    return {"links": records(next(rounds()))}


def live(running: Running) -> None:
    """Rank the web, then send round after round of changes; print what each of them took."""
    print("changes  turns  ranks sent  pages  the first three")
    for number, changes in enumerate(rounds()):
        if number:
            fill({"links": records(changes)})
        before = len(topic("ranks")) if number else 0
        running.catch_up()
        rows, state = topic("ranks")[before:], running.state("pagerank")
        first = ", ".join(f"{r['page']} {r['rank']:.4f}" for r in state.top(3).to_pylist())
        turns = max(r["turns"] or 0 for r in rows)
        print(f"{len(changes):>7} {turns:>6} {len(rows):>11} {len(state):>6}  {first}")


def report(progress: Progress) -> None:
    print(f"\n{progress.total['read']:,} changes read in {progress.epoch} batches")


if __name__ == "__main__":
    fill(topics())
