"""Lines of two web servers' access logs, a few of them garbled: python -m examples.data.access_log

One server fails for a while, so it is known what the alerts should say.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

from examples.data.playing import BEGIN, SEED, disorder, fill, line, topic

import headrace as hr
from headrace.inspect.progress import Progress

RATES = {"web1": 6.0, "web2": 4.0}  # requests a second
MINUTES = 10
OUTAGE = ("web2", 190, 310)  # seconds after the beginning
GARBLED = 0.01
PAGES = [
    "/",
    "/docs/windows",
    "/docs/joins",
    "/download",
    "/blog/2024/water",
    "/search",
    "/logo.png",
]
NETWORKS = ["192.0.2", "198.51.100", "203.0.113", "10.0.0"]
AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:131.0) Gecko/20100101 Firefox/131.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/8.9.1",
    r"Spider \"Otto\" (+https://example.org/otto)",
]


def request(rng: random.Random, server: str, second: float) -> str:
    """One line: address, identity, user, time, request, status, size, referrer, agent."""
    page = rng.choices(PAGES, [1 / (i + 1) for i in range(len(PAGES))])[0]
    url = f"{page}?q=mill+race&page={rng.randint(1, 9)}" if page == "/search" else page
    ill = server == OUTAGE[0] and OUTAGE[1] <= second < OUTAGE[2]
    status = rng.choices([200, 304, 404, 301, 503], [80, 8, 6, 3, 60 if ill else 0.5])[0]
    size = "-" if status == 304 else str(rng.randint(200, 90_000))
    at = datetime.fromtimestamp(BEGIN + int(second), UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
    address = f"{rng.choice(NETWORKS)}.{rng.randint(1, 254)}"
    user = "ada" if rng.random() < 0.05 else "-"
    method = "POST" if page == "/search" and rng.random() < 0.2 else "GET"
    referrer = rng.choice(["-", "https://example.org/", "https://search.example/?q=headrace"])
    return (
        f'{address} - {user} [{at}] "{method} {url} HTTP/1.1" {status} {size} '
        f'"{referrer}" "{rng.choice(AGENTS)}"'
    )


def garble(rng: random.Random, text: str) -> str:
    """Cut off, a TLS handshake sent to the wrong port, or a status that is no number."""
    handshake = text.partition('"')[0] + r'"\x16\x03\x01\x02" 400 226 "-" "-"'
    return rng.choice([text[: rng.randint(5, 60)], handshake, text.replace('" 200 ', '" OK ')[:-1]])


def lines(seed: int = SEED) -> Iterator[bytes]:
    rng, sent = random.Random(seed), []
    for server, rate in RATES.items():
        second = rng.expovariate(rate)
        while second < 60 * MINUTES:
            text = request(rng, server, second)
            text = garble(rng, text) if rng.random() < GARBLED else text
            sent.append((second, line(second, server=server, line=text)))
            second += rng.expovariate(rate)
    yield from disorder(rng, sent)


def topics() -> dict[str, Iterator[bytes]]:
    return {"access": lines()}


def report(progress: Progress) -> None:
    statuses: dict[int, int] = {}
    for row in topic("by-status"):
        statuses[row["status"]] = statuses.get(row["status"], 0) + row["requests"]
    for status, requests in sorted(statuses.items()):
        print(f"status {status}  {requests / MINUTES:7.1f} requests a minute")
    pages = topic("top-pages")
    last = max(row["window_end"] for row in pages)
    for row in sorted(pages, key=lambda row: row["rank"]):
        if row["window_end"] == last:
            print(f"page {row['rank']}  {row['requests']:3} in the last minute: {row['page']}")
    alerts = [(r["window_end"].timestamp() - BEGIN, r["server"]) for r in topic("alerts")]
    print(f"alerts      {alerts[0][1]}, from {min(alerts)[0]:.0f} s to {max(alerts)[0]:.0f} s")
    dead = hr.read_output("job/dead").num_rows
    print(f"{progress.total['read']:,} lines, of which {dead} are not in the combined format")


if __name__ == "__main__":
    fill(topics())
