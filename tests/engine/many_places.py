"""A shop whose job is killed while customers and orders come; and what its outputs must hold.

Customers are rows of PostgreSQL that are inserted, updated and deleted; orders are records of a
topic of Kafka. The job joins them (`many_places_job.py`). The model is a dictionary of each: in the
end Delta holds their join, and so do the changelogs in Kafka and at the webhook when they are added
up, in which a row that was lost or doubled is one too few or too many.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from headrace.connect.sql import Connection, connect
from headrace.state.epochs import EpochLog
from tests.databases import new_table, postgres_database, postgres_uri, run
from tests.engine.killing import environment
from tests.kafka.running import broker, new_topic, produce
from tests.kafka.written import fresh, messages
from tests.sinks.webhook_cases import receiver

ROOT = Path(__file__).parent.parent.parent
# Where a life ends by itself; others are killed at any moment.
POINTS = (
    "commit.manifest:2", "sink.publish:1", "sink.kafka.produced:1", "sink.lake.committed:1",
    "sink.webhook.posted:2", "sink.kafka.committed:1", "source.changes.added:2",
    "sink.lake.looked:2", "commit.published:1", "sink.publish:3",
)  # fmt: skip
PATIENCE = 180.0  # seconds


class Shop:
    def __init__(self, place: Path, seed: int = 1) -> None:
        self.draw, self.place = random.Random(seed), place
        self.customers, self.orders = dict[int, str](), dict[int, int]()
        self._table, database = new_table("postgresql"), postgres_database()
        run(database, f"CREATE TABLE {self._table} (id bigint PRIMARY KEY, name text)")
        self._database: Connection = connect(database)
        self._orders, self._named, self._hook = new_topic(2), fresh(), f"/{place.name}-{seed}"
        self.folder, self._settings = place / "job", place / "places.json"
        self._settings.write_text(
            json.dumps(
                {
                    "database": postgres_uri(), "table": self._table, "broker": broker().address,
                    "orders": self._orders, "named": self._named, "delta": str(place / "delta"),
                    "hook": f"{receiver().url}{self._hook}", "folder": str(self.folder),
                    "batch": 60,
                }
            )
        )  # fmt: skip

    def close(self) -> None:
        self._database.close()
        gone = "SELECT pg_drop_replication_slot(slot_name)::text FROM pg_replication_slots"
        run(postgres_database(), f"{gone} WHERE NOT active")

    # what happens in the shop

    def trade(self, times: int = 20) -> None:
        for _ in range(times):
            self.draw.choice([self._customer, self._order, self._order])()

    def _customer(self) -> None:
        id, name = self.draw.randrange(8), f"n{self.draw.randrange(1_000)}"
        if id in self.customers and self.draw.random() < 0.4:
            self._database.run(f"DELETE FROM {self._table} WHERE id = {id}")
            del self.customers[id]
        else:
            self._database.run(
                f"INSERT INTO {self._table} VALUES ({id}, '{name}') "
                "ON CONFLICT (id) DO UPDATE SET name = excluded.name"
            )
            self.customers[id] = name

    def _order(self) -> None:
        """A new one, or one that goes to another customer."""
        again = self.orders and self.draw.random() < 0.2
        order = self.draw.choice([*self.orders]) if again else len(self.orders)
        self.orders[order] = self.draw.randrange(8)
        record = json.dumps({"order": order, "id": self.orders[order]})
        produce(self._orders, [record.encode()], partition=order % 2)

    # the job

    def start(self, *words: str, crash: str | None = None) -> subprocess.Popen[bytes]:
        order = {"HEADRACE_CRASH": crash} if crash else {}
        command = [sys.executable, "-m", "tests.engine.many_places_job", str(self._settings)]
        with (self.place / "said").open("ab") as said:
            return subprocess.Popen(
                [*command, *words], cwd=ROOT, env=environment() | order, stdout=said, stderr=said
            )

    def epoch(self) -> int:
        return EpochLog(self.folder).newest() if (self.folder / "epochs").is_dir() else 0

    def live_and_be_killed(self, crash: str | None) -> None:
        """One life: it trades until it dies at a point, or is killed after an epoch or two."""
        life, began, end = self.start(crash=crash), self.epoch(), time.monotonic() + PATIENCE
        more = self.draw.randrange(1, 4)
        while life.poll() is None:
            self.trade(1)
            time.sleep(0.1)
            assert time.monotonic() < end, self._said("it neither dies nor goes on")
            if crash is None and self.epoch() >= began + more:
                time.sleep(self.draw.random() * 0.05)  # anywhere in an epoch
                life.kill()
                life.wait()
        assert life.returncode == -signal.SIGKILL, self._said(f"it ended: {life.returncode}")

    def lives(self, kills: int) -> None:
        """So many lives: every second one ends at a point, the others anywhere."""
        for number in range(kills):
            at_a_point = number % 2 == 0
            crash = POINTS[number // 2 % len(POINTS)] if at_a_point else None
            self.live_and_be_killed(crash)

    def live_until_all_is_there(self) -> None:
        life, end = self.start(), time.monotonic() + PATIENCE
        try:
            while self.delta() != self.wanted() or self.hook() != self.kafka():
                assert life.poll() is None, self._said(f"it ended: {life.returncode}")
                assert time.monotonic() < end, self._said(f"it is not all there: {self._missing()}")
                time.sleep(0.1)
        finally:
            life.kill()
            life.wait()

    def _missing(self) -> str:
        found = {"delta": self.delta(), "kafka": self.kafka(), "hook": self.hook()}
        wanted = self.wanted()
        more = {name: dict(rows - wanted) for name, rows in found.items()}
        less = {name: dict(wanted - rows) for name, rows in found.items()}
        return f"{len(wanted)} rows; missing {less}; too many {more}; epoch {self.epoch()}"

    def _said(self, what: str) -> str:
        return f"{what}\n{(self.place / 'said').read_text()[-3_000:]}"

    # what there is

    def wanted(self) -> Counter[Any]:
        return Counter((o, id, self.customers.get(id)) for o, id in self.orders.items())

    def delta(self) -> Counter[Any]:
        if not DeltaTable.is_deltatable(str(self.place / "delta")):
            return Counter()
        rows = DeltaTable(self.place / "delta").to_pyarrow_table().to_pylist()
        return Counter((r["order"], r["id"], r["name"]) for r in rows)

    def kafka(self) -> Counter[Any]:
        return _added_up(json.loads(m.value()) for m in messages(self._named))

    def hook(self) -> Counter[Any]:
        """By a receiver that drops what has a key that it knows."""
        return _added_up(receiver().rows.get(self._hook, []))

    def check(self) -> None:
        wanted = self.wanted()
        assert self.delta() == wanted
        assert self.kafka() == wanted
        assert self.hook() == wanted

    def repeats(self) -> int:
        """Requests that came again under a key that the receiver knew."""
        sent = sum(path == self._hook for path, _, _ in receiver().attempts)
        return sent - len(receiver().keys.get(self._hook, []))


def _added_up(changes: Any) -> Counter[Any]:
    """What the rows of a changelog come to; one that is there twice, or only retracted, stays."""
    rows: Counter[Any] = Counter()
    for row in changes:
        rows[row["order"], row["id"], row.get("name")] += 1 if row["change"] == "+" else -1
    return Counter({row: n for row, n in rows.items() if n})
