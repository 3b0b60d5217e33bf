"""A real server with real jobs, for the tests of the page.

The server, its supervisor, its store and its interface are the ones that users run; each job is a
process of its own with the real command line. Only Spark is not there (`tests/server/playing.py`).
"""

from __future__ import annotations

import socket
from pathlib import Path

import headrace
from headrace.server.http import HttpServer, serve
from tests.server.forking import Command
from tests.server.worlds import World

HOSTILE = "<img src=x onerror=\"document.title='owned'\">'&"  # no job may be called so
EVIL = "<img src=x onerror=document.title=1><script>document.title=2</script>"

# Orders of every kind: good ones, bad ones (dead letters with hostile records), late ones.
SHOP = """
import datetime
import headrace as hr


def order(i):
    if i % 100 == 0:
        print(f"order {{i}}", {evil!r}, flush=True)
    at = datetime.datetime.now(datetime.UTC)
    if i % 23 == 7:
        at -= datetime.timedelta(seconds=30)
    price = "n/a{evil}" if i % 50 == 11 else str(i % 90)
    return {{"customer": f"c{{i % 12}}", "price": price, "at": at}}


def parse(row):
    return {{"customer": row.customer, "price": float(row.price), "at": row.at}}


class Spending(hr.KeyedProcess):
    total = hr.value(float, default=0.0)
    output = "customer string, total double"

    def on_row(self, row, ctx):
        ctx.counter("rows{evil}").add()
        ctx.histogram("price").record(row.price)
        self.total += row.price
        return (ctx.key, self.total)


job = hr.Job({name!r})
orders = job.read(
    hr.generate(60, order, schema="customer string, price string, at timestamp", splits=2),
    time="at", delay="1s", name="orders",
)
parsed = orders.map(parse, schema="customer string, price double, at timestamp", name="parse")
paid = parsed.where("price > 1", name="paid")
windows = paid.key_by("customer").window(hr.tumbling("2s"))
sums = windows.agg(total=hr.sum("price"), n=hr.count(), name="sums")
spent = paid.key_by("customer").process(Spending(), unbounded=True, name="spent")
sums.write("files:out-{folder}/sums", name="sums out")
spent.write("files:out-{folder}/spent", name="spent out")
sums.late.write("files:out-{folder}/late", name="late out")
"""

# Adds up lines; stops at a record that is no number, as it is told to.
STRICT = """
import headrace as hr

job = hr.Job("strict", on_error="fail")
rows = job.read("files:in", schema="k string, n bigint", name="lines")


def half(row):
    if row.n == 13:
        raise ValueError("13 is not for us")
    return {"k": row.k, "n": row.n}


rows.map(half, schema="k string, n bigint", name="half").write("files:out-strict", name="out")
"""


class Site:
    """The server, which can be stopped and started again at the same address."""

    def __init__(self, place: Path, command: Command) -> None:
        self.world = World(place, command)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.http: HttpServer | None = None
        self.write("shop.py", SHOP, name="shop", folder="shop", evil="")
        self.write("hostile.py", SHOP, name="hostile", folder="hostile", evil=EVIL)
        self.world.write("strict.py", STRICT)

    def write(self, file: str, text: str, **values: str) -> str:
        return self.world.write(file, text.format(**values))

    def open(self) -> None:
        daemon = self.world.open(version=headrace.__version__)
        self.tokens = daemon.tokens
        self.http = serve(daemon.service, port=self.port, tokens=daemon.tokens)

    def close(self) -> None:
        if self.http is not None:
            self.http.close()
            self.http = None
        self.world.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def address(self, role: str = "operate", hash: str = "") -> str:
        return f"{self.url}/#token={self.tokens[role]}{hash}"

    def program(self, file: str) -> str:
        return str(self.world.programs / file)

    def end(self) -> None:
        if self.http is not None:
            self.http.close()
        self.world.end()
