"""The examples of windows do what they say: word count from a real socket, trending hashtags."""

from __future__ import annotations

import json
import random
import re
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from examples.lines import fill, lines
from examples.posts import BURSTS, MINUTES, SEED, posts

import headrace as hr
from headrace.cli.loading import load_job
from headrace.clock import ManualClock
from headrace.testing import Driver

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BEGIN = 1_700_000_010  # seconds; a multiple of 30
Counts = dict[int, Counter[str]]  # by end of window, in seconds


def seconds(time: datetime) -> int:
    return (time - datetime.fromtimestamp(0, UTC)) // timedelta(seconds=1)


def last(counts: Counts, size: int, every: int) -> Counts:
    """A plain model of windows: what `counts`, by second, are over the last `size` seconds."""
    found: Counts = {}
    for second, words in counts.items():
        first = second // every * every + every
        for end in range(first, first + size, every):
            found.setdefault(end, Counter()).update(words)
    return found


def output(name: str, *columns: str) -> list[tuple[Any, ...]]:
    rows = hr.read_output(f".headrace/{name}").to_pylist()
    return [(seconds(r["window_end"]), *(r[c] for c in columns)) for r in rows]


@pytest.mark.parametrize("name", ["word_count", "trending"])
def test_an_example_is_a_program_of_at_most_eighty_lines(name: str) -> None:
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 80


# word count


class Server:
    """Sends lines to the one who connects."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(20)
        self.port = self._listening.getsockname()[1]
        self._client: socket.socket | None = None

    def send(self, sent: list[str]) -> None:
        while self._client is None:
            client, _ = self._listening.accept()
            self._client = client if stays(client) else None
        self._client.sendall("".join(f"{line}\n" for line in sent).encode())

    def close(self) -> None:
        for open_one in filter(None, (self._client, self._listening)):
            open_one.close()


def stays(client: socket.socket) -> bool:
    """Whether it is still there: a start first looks whether somebody listens, and hangs up."""
    client.setblocking(False)
    try:
        gone = client.recv(1) == b""
    except BlockingIOError:
        gone = False
    client.setblocking(True)
    if gone:
        client.close()
    return not gone


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def read_all(driver: Driver, total: int) -> None:
    """Run batches until so many lines have come over the wire."""
    wait = threading.Event()
    for _ in range(2_000):
        progress = driver.drain()
        if progress is not None and progress.counts["lines"]["read"] >= total:
            return
        wait.wait(0.01)
    raise AssertionError(f"not all of {total} lines came")


def test_words_from_a_socket_are_counted_three_ways(server, tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LINES", f"socket:127.0.0.1:{server.port}")
    clock, job = ManualClock(BEGIN * 1_000), load_job(EXAMPLES / "word_count.py")
    driver = Driver(job, tmp_path / "job", until=None, max_batch=1_000, clock=clock)
    driver.drain()  # connects
    text, each_second = lines(), Counts()
    for number in range(8):
        sent = list(islice(text, 3))
        server.send(sent)
        read_all(driver, 3 * (number + 1))
        spoken = Counter(re.findall(r"[a-z]+", " ".join(sent).lower()))
        each_second[BEGIN + number * 20] = spoken
        clock.advance(20_000)  # one burst of lines every 20 seconds
        driver.drain()
    clock.advance(60_000)
    driver.drain()
    driver.close()

    minutes = last(each_second, 60, 1)
    expected = Counter((end, w, n) for end, words in minutes.items() for w, n in words.items())
    assert len(expected) > 1_000
    assert Counter(output("word-count/last-minute", "word", "n")) == expected
    assert Counter(output("word-count/from-seconds", "word", "n")) == expected
    printed = capsys.readouterr().out
    assert printed.count("each second: word=") == sum(map(len, each_second.values()))


def test_lines_can_come_from_a_topic(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("LINES", "log:lines")
    fill("lines", rate=1e9, total=50)
    Driver(load_job(EXAMPLES / "word_count.py"), tmp_path / "job").drain()
    spoken = Counter(re.findall(r"[a-z]+", " ".join(islice(lines(), 50)).lower()))
    printed = re.findall(r"word=(\w+) .* n=(\d+)", capsys.readouterr().out)
    assert {word: int(n) for word, n in printed} == spoken


# trending


@cache
def posted() -> list[list[bytes]]:
    """What is posted, a minute at a time."""
    rng = random.Random(SEED)
    minutes = [range(60 * m, 60 * m + 60) for m in range(MINUTES)]
    return [[post for s in minute for post in posts(rng, BEGIN, s)] for minute in minutes]


@cache
def counts() -> Counts:
    """(end of window) -> how often each tag was used, from the posts themselves."""
    each_second: Counts = {}
    for minute in posted():
        for post in map(json.loads, minute):
            second = seconds(datetime.fromisoformat(post["at"]))
            tags = re.findall(r"#(\w+)", post["text"].lower())
            each_second.setdefault(second, Counter()).update(tags)
    return last(each_second, 300, 30)


def trends() -> Iterator[tuple[Any, ...]]:
    """A plain model of the result."""
    for end, now in counts().items():
        before = counts().get(end - 30, Counter())
        growth = {tag: n - before[tag] for tag, n in now.items()}
        for by, score in (("count", now), ("growth", growth)):
            first = sorted(score.items(), key=lambda item: (-item[1], item[0]))[:5]
            for place, (tag, _) in enumerate(first, 1):
                yield (end, by, place, tag, now[tag], growth[tag])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[tuple[Any, ...]]]:
    place = tmp_path_factory.mktemp("trending")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        patch.setenv("HEADRACE_LOG", str(place / "log"))
        log, clock = hr.EmbeddedLog(), ManualClock(BEGIN * 1_000)
        log.create("posts")
        job = load_job(EXAMPLES / "trending.py")
        driver = Driver(job, place / "job", until=None, max_batch=100_000, clock=clock)
        for minute in posted():
            log.append("posts", minute)
            clock.advance(60_000)
            driver.epoch()
        driver.close()
        Driver(job, place / "job", clock=clock).drain()
        assert hr.read_output(place / "job" / "dead").num_rows == 0
        yield output("trending/trends", "by", "place", "tag", "n", "growth")


def test_the_trends_are_those_of_a_plain_model(found: list[tuple[Any, ...]]) -> None:
    assert Counter(found) == Counter(trends())


def test_what_bursts_trends_by_growth_before_it_leads_by_count(
    found: list[tuple[Any, ...]],
) -> None:
    for burst in BURSTS:
        leads = {
            by: min(r[0] for r in found if r[1:4] == (by, 1, burst.tag)) - BEGIN
            for by in ("count", "growth")
        }
        assert burst.start < leads["growth"] <= burst.start + 60
        assert leads["growth"] + 60 < leads["count"] < burst.end + 60
