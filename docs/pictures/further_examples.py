"""Pictures of further examples: what each gives over all its generator's records.

python docs/pictures/further_examples.py [folder]
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

import headrace as hr
from headrace.cli.loading import load_job
from headrace.clock import ManualClock
from headrace.testing import Driver

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
from applications import BLUE, GREEN, GREY, RED, played  # noqa: E402

ORANGE, PALE = "#e6550d", "#9ecae1"


@contextlib.contextmanager
def scratch(**env: str) -> Iterator[Path]:
    """A folder to work in, and a log in it; both are gone afterwards, and nothing is printed."""
    before, quiet = dict(os.environ), contextlib.redirect_stdout(io.StringIO())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), quiet:
        os.environ.update(env, HEADRACE_LOG=str(Path(folder) / "log"))
        try:
            yield Path(folder)
        finally:
            os.environ.clear()
            os.environ.update(before)


def started(name: str, clock: ManualClock) -> tuple[hr.Job, Driver]:
    job = load_job(ROOT / "examples" / f"{name}.py")
    return job, Driver(job, "job", until=None, clock=clock)


def save(figure: Any, axes: Any, place: Path) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(place, dpi=100)
    plt.close(figure)


def fire_alarm(folder: Path) -> None:
    """The averages of each area, shaded while the alarm is on."""
    from examples.demo.findings import AVERAGES
    from examples.demo.picture import draw
    from examples.demo.sensors import MINUTES, SEED, TOPICS, records, send

    begin, rng = 1_700_000_000, random.Random(SEED)
    with scratch():
        log, clock = hr.EmbeddedLog(), ManualClock(begin * 1_000)
        for topic in TOPICS:
            log.create(topic)
        _, driver = started("fire_alarm", clock)
        for minute in range(int(MINUTES)):
            seconds = range(60 * minute, 60 * (minute + 1))
            sent = [one for second in seconds for one in records(rng, begin, second)]
            send(hr.Producer(log), sent)
            clock.advance(60_000)
            driver.drain()
        alarms = [row for _, rows in log.read("alarms", 0, 0) for row in rows.to_pylist()]
        averages = hr.read_output(AVERAGES).to_pylist()
    end = datetime.fromtimestamp(begin + 60 * MINUTES, UTC)
    draw(averages, alarms, end, str(folder / "fire-alarm.png"))


def access_log(folder: Path) -> None:
    """Requests of each minute by status, the outage there was, and the alerts."""
    with played("access_log"):
        from examples.data.access_log import MINUTES, OUTAGE
        from examples.data.playing import BEGIN, topic

        counts, alerts = topic("by-status"), topic("alerts")
    figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
    below = [0] * MINUTES
    for status, colour in ((200, BLUE), (301, PALE), (304, "0.8"), (404, ORANGE), (503, RED)):
        height = [0] * MINUTES
        for row in (r for r in counts if r["status"] == status):
            height[int(row["window_start"].timestamp() - BEGIN) // 60] = row["requests"]
        axis.bar([m + 0.5 for m in range(MINUTES)], height, 0.9, below, color=colour, label=status)
        below = [a + b for a, b in zip(below, height, strict=True)]
    ends = [(row["window_end"].timestamp() - BEGIN) / 60 for row in alerts]
    axis.scatter(ends, [max(below) * 1.06] * len(ends), marker="v", color=RED, s=24, label="alert")
    axis.axvspan(OUTAGE[1] / 60, OUTAGE[2] / 60, color=RED, alpha=0.08, lw=0)
    axis.set(xlabel="minutes", ylabel="requests a minute", xlim=(0, MINUTES))
    axis.set_title(f"Shaded: {OUTAGE[0]} fails. Marks: the alerts of its last minute", loc="left",
                   fontsize=10)  # fmt: skip
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    save(figure, axis, folder / "access-log.png")


def wikipedia(folder: Path) -> None:
    """Edits of each channel, every 10 seconds."""
    with played("wikipedia"):
        from examples.data.playing import BEGIN, topic

        rows = topic("wikipedia-stats")
    figure, axis = plt.subplots(figsize=(9, 3), layout="constrained")
    for channel, colour in zip(sorted({r["channel"] for r in rows}), (GREEN, BLUE, GREY)):  # noqa: B905
        seen = sorted((r["window_end"].timestamp() - BEGIN, r["edits"], r["bot"])
                      for r in rows if r["channel"] == channel)  # fmt: skip
        seconds, edits, bots = zip(*seen, strict=True)
        axis.plot(seconds, edits, color=colour, lw=1.4, label=channel)
        axis.plot(seconds, bots, color=colour, lw=0.8, ls=":", label=f"{channel}, by bots")
    axis.set(xlabel="seconds", ylabel="edits in 10 s", xlim=(0, 300), ylim=(0, None))
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    save(figure, axis, folder / "wikipedia.png")


def pagerank(folder: Path) -> None:
    """The ranks of some pages, after each round of changes."""
    from examples.data.pagerank import records, rounds
    from examples.data.playing import fill

    ranks: list[dict[str, float]] = []
    changes = list(rounds())
    with scratch():
        fill({"links": []})
        job, driver = started("pagerank", ManualClock(0))
        for made in changes:
            fill({"links": records(made)})
            driver.drain()
            state = hr.peek(job, "pagerank.ranks", folder="job").to_arrow().to_pylist()
            ranks.append({row["page"]: row["rank"] for row in state})
    figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
    known = {page for seen in ranks for page in sorted(seen, key=seen.__getitem__)[-4:]}
    colours = itertools.cycle([BLUE, ORANGE, GREEN, GREY, "#756bb1", "#8c6d31"])
    for page in sorted(known):
        colour = RED if page == "news" else next(colours)
        axis.plot([seen.get(page, float("nan")) for seen in ranks], "o-", ms=4, lw=1.3,
                  color=colour, label=page)  # fmt: skip
    axis.set_xticks(range(len(changes)), [f"{len(made):,}" for made in changes])
    axis.set(xlabel="links added and removed in each batch", ylabel="rank", ylim=(0, None))
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    save(figure, axis, folder / "pagerank.png")


def spam(folder: Path) -> None:
    """Messages of the last quarter of an hour, by topic: one gang is known, one becomes known."""
    from examples.data.playing import BEGIN, fill, topic
    from examples.data.spam import AFTER, BEFORE, MINUTES, NEWS, START, messages, write

    with scratch():
        table, clock = Path(".headrace/spam/senders.parquet").absolute(), ManualClock(0)
        write(BEFORE, table)
        fill({"messages": messages(0, NEWS)})
        _, driver = started("spam", clock)
        driver.drain()
        write(AFTER, table)
        clock.advance(1_000)
        fill({"messages": messages(NEWS, MINUTES)})
        driver.drain()
        rows = topic("freqs")
    figure, axis = plt.subplots(figsize=(9, 3.2), layout="constrained")
    for name, colour in (("football", BLUE), ("rain", GREEN), ("trains", GREY), ("lottery", RED)):
        seen = sorted(((r["window_end"].timestamp() - BEGIN - START) / 60, r["messages"])
                      for r in rows if r["topic"] == name)  # fmt: skip
        axis.plot(*zip(*seen, strict=True), "o-", ms=3, color=colour, lw=1.4, label=name)
    axis.axvline(NEWS, color=RED, ls="--", lw=0.9)
    axis.text(NEWS + 0.2, axis.get_ylim()[1], "a new table: the gang is known", color=RED,
              fontsize=8, va="top")  # fmt: skip
    axis.set(xlabel="minutes after 20:50", ylabel="messages in 15 min", xlim=(0, MINUTES))
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, axis, folder / "spam.png")


def fraud(folder: Path) -> None:
    """What follows small payments of some cards: payments, PINs, and which of them are found."""
    with played("fraud"):
        from examples.data.fraud import planted

        found = {(r["card"], r["small_at"]) for r in
                 hr.read_output(".headrace/fraud/found").to_pylist()}  # fmt: skip
        paid = [json.loads(record) for record in planted()[0]]
    for payment in paid:
        payment["at"] = datetime.fromisoformat(payment["at"])
    small = sorted((p["at"], p["card"]) for p in paid if p["amount"] < 1)[:16]
    figure, axis = plt.subplots(figsize=(9, 3.6), layout="constrained")
    kinds = {"small": ("o", GREY), "large, at home": ("s", BLUE), "large, abroad": ("s", ORANGE),
             "with PIN": ("^", GREEN)}  # fmt: skip
    for y, (since, card) in enumerate(small):
        hit = (card, since) in found
        axis.axhline(y, color=RED if hit else "0.9", lw=6 if hit else 1, alpha=0.25, zorder=0)
        for p in (p for p in paid if p["card"] == card):
            minutes = (p["at"] - since).total_seconds() / 60
            size = "large, abroad" if p["country"] != "IN" else "large, at home"
            kind = "with PIN" if p["pin"] else "small" if p["amount"] < 1 else size
            if 0 <= minutes <= 16 and (p["pin"] or p["amount"] < 1 or p["amount"] > 500):
                axis.scatter(minutes, y, marker=kinds[kind][0], color=kinds[kind][1], s=34)
    for kind, (marker, colour) in kinds.items():
        axis.scatter([], [], marker=marker, color=colour, label=kind)
    axis.plot([], [], color=RED, alpha=0.25, lw=6, label="found")
    axis.axvline(10, color="0.6", ls=":", lw=0.9)
    axis.set(xlabel="minutes after a small payment", xlim=(-0.5, 16), yticks=[])
    figure.legend(frameon=False, fontsize=8, loc="outside right center")
    save(figure, axis, folder / "fraud.png")


def word_count(folder: Path) -> None:
    """Three words: in each second, and in the last minute."""
    from examples.lines import lines

    begin, sent = 1_700_000_000, lines()
    with scratch(LINES="log:lines"):
        log, clock = hr.EmbeddedLog(), ManualClock(begin * 1_000)
        log.create("lines")
        _, driver = started("word_count", clock)
        for _ in range(120):
            log.append("lines", [next(sent).encode() for _ in range(4)])
            driver.drain()
            clock.advance(1_000)
        rows = hr.read_output(".headrace/word-count/last-minute").to_pylist()
    figure, axis = plt.subplots(figsize=(9, 3), layout="constrained")
    for word, colour in (("the", BLUE), ("stream", GREEN), ("of", ORANGE), ("twice", GREY)):
        seen = sorted((r["window_end"].timestamp() - begin, r["n"])
                      for r in rows if r["word"] == word)  # fmt: skip
        axis.plot(*zip(*seen, strict=True), color=colour, lw=1.4, label=word)
    axis.axvline(60, color="0.6", ls=":", lw=0.9)
    axis.set(xlabel="seconds", ylabel="in the last minute", xlim=(0, 120), ylim=(0, None))
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    save(figure, axis, folder / "word-count.png")


def main(folder: Path) -> None:
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    for draw in (fire_alarm, access_log, wikipedia, pagerank, spam, fraud, word_count):
        draw(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
