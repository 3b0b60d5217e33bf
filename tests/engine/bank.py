"""A bank: transfers of 1 between ten accounts, added up while they come.

Every account has a balance, what it got less what it gave, and all balances together are 0 at every
moment, whatever part of the transfers has been read: if an output shows anything else, it shows
credits of one moment beside debits of another. And every transfer, joined with itself, finds its
partner. The outputs are tables of SQLite with the epoch of each row, read from outside at any time.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

import headrace as hr

ACCOUNTS, SEED = 10, 42
SCHEMA = "id bigint, debtor int, creditor int, at bigint"


@dataclass(frozen=True)
class Ledger(hr.Output):
    """A table of SQLite whose rows have the epoch that wrote them."""

    kind: ClassVar[str] = "test ledger"
    file: str
    table: str

    def open(self, schema: pa.Schema) -> None:
        with closing(sqlite3.connect(self.file)) as db, db:
            columns = ", ".join(schema.names)
            db.execute(f"CREATE TABLE IF NOT EXISTS {self.table} (epoch, {columns})")
            db.execute("CREATE TABLE IF NOT EXISTS delivered (producer PRIMARY KEY, epoch)")

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        with closing(sqlite3.connect(self.file, timeout=60)) as db, db:
            places = ", ".join("?" * (rows.num_columns + 1))
            values = zip(*(c.to_pylist() for c in rows.columns), strict=True)
            db.executemany(
                f"INSERT INTO {self.table} VALUES ({places})", ((epoch, *v) for v in values)
            )
            db.execute("INSERT OR REPLACE INTO delivered VALUES (?, ?)", (producer, epoch))

    def delivered(self) -> dict[str, int]:
        with closing(sqlite3.connect(self.file, timeout=60)) as db:
            known = "SELECT 1 FROM sqlite_master WHERE name = 'delivered'"
            found = db.execute(known).fetchone() and db.execute("SELECT * FROM delivered")
            return dict(found or ())


def transfers(count: int) -> pa.Table:
    draw = np.random.default_rng(SEED)
    debtors = draw.integers(0, ACCOUNTS, count)
    creditors = (debtors + draw.integers(1, ACCOUNTS, count)) % ACCOUNTS
    ids = np.arange(count)
    columns = [ids, debtors.astype("int32"), creditors.astype("int32"), 1_700_000_000_000 + ids]
    return pa.table(columns, names=["id", "debtor", "creditor", "at"])


def fill(place: Path, count: int) -> None:
    log = hr.EmbeddedLog(str(place / "log"))
    log.create("transfers", partitions=2, schema=SCHEMA)
    log.append("transfers", transfers(count))


def build(place: Path) -> hr.Job:
    job, db = hr.Job("bank"), str(place / "bank.db")
    made = job.read(
        "log:transfers", log=str(place / "log"), time="at", in_order=True, name="transfers"
    )

    def side(who: str, what: str) -> Any:
        keyed = made.select(account=who).key_by("account")
        counted = keyed.agg(**{what: hr.count()}, unbounded=True, name=what)
        return counted.table("account", unbounded=True)

    credits, debits = side("creditor", "credit"), side("debtor", "debit")
    joined = credits.join(debits, on="account", how="full", time="processing", name="joined")
    balance = "coalesce(credit, 0) - coalesce(debit, 0)"
    balances = joined.select("account", "change", balance=balance)
    balances.write(Ledger(db, "balances"), name="balances")
    part = "case when change = '+' then balance else -balance end"
    parts = balances.select(part=part, bank="1").key_by("bank")
    parts.agg(total=hr.sum("part"), unbounded=True, name="total").write(
        Ledger(db, "totals"), name="totals"
    )
    left = made.select("id", "at").key_by("id")
    right = made.select("id", "at", partner="id").key_by("id")
    pairs = left.join(right, within="1s", how="full", name="paired")
    pairs.select("id", "partner").write(Ledger(db, "pairs"), name="pairs")
    return job


class Verdict:
    """What a reader of the bank sees now, epoch by epoch."""

    def __init__(self, place: Path) -> None:
        self.balances = Counter[int]()
        self.violations, self.rows = list[str](), 0
        with closing(sqlite3.connect(str(place / "bank.db"), timeout=60)) as db:
            db.execute("BEGIN")  # one moment, of all tables
            by_epoch = "SELECT epoch, account, balance, change FROM balances ORDER BY epoch"
            changes = db.execute(by_epoch).fetchall()
            totals = db.execute("SELECT epoch, total FROM totals ORDER BY rowid").fetchall()
            self.pairs = Counter(db.execute("SELECT id, partner FROM pairs").fetchall())
        self.rows = len(changes) + len(totals) + self.pairs.total()
        shown = Counter[tuple[int, int]]()
        for at, (epoch, account, balance, change) in enumerate(changes):
            shown[account, balance] += 1 if change == "+" else -1
            if at + 1 == len(changes) or changes[at + 1][0] != epoch:
                self._look(epoch, +shown, -shown)
        last = dict(totals)  # of each epoch, the last
        self.violations += [f"epoch {e}: the total is {t}" for e, t in last.items() if t]
        self.violations += [f"no partner: {pair}" for pair in self.pairs if None in pair]
        self.violations += [f"{n} times: {pair}" for pair, n in self.pairs.items() if n != 1]

    def _look(self, epoch: int, shown: Counter[Any], missing: Counter[Any]) -> None:
        if missing or {*shown.values()} != {1} or len({a for a, _ in shown}) != len(shown):
            self.violations.append(f"epoch {epoch}: no state of accounts: {shown} {missing}")
        self.balances = Counter(dict(shown.keys()))
        if sum(self.balances.values()):
            self.violations.append(f"epoch {epoch}: {dict(self.balances)} is not 0 together")


def wanted(count: int) -> Counter[int]:
    rows = transfers(count)
    return Counter(
        {
            a: n
            for a in range(ACCOUNTS)
            for n in [rows["creditor"].to_pylist().count(a) - rows["debtor"].to_pylist().count(a)]
        }
    )
