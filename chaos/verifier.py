"""The outside verifier: what outputs show while a job is killed, and must show in the end.

It knows the records that were sent and a few lines of plain Python for each program; it imports
nothing of Headrace. At every look a row must have its twin (else half an epoch is visible), must
not be there twice, and must still be there if it was seen before; in the end everything must be
there, and each malformed record once in the dead letters.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.outputs import Reader, Row, Rows, dead, readers

SIZE, GAP, WITHIN, BEST = 2_000, 1_500, 5_000, 3
Record = Mapping[str, Any]


@dataclass
class Sent:
    """What was sent to a job's inputs, in order."""

    rows: list[Record] = field(default_factory=list)
    payments: list[Record] = field(default_factory=list)
    malformed: list[bytes] = field(default_factory=list)

    def by_key(self) -> Iterator[tuple[str, list[Record]]]:
        """The rows of each key, by time and place."""
        keys = defaultdict[str, list[Record]](list)
        for row in self.rows:
            keys[row["k"]].append(row)
        yield from ((k, sorted(rows, key=_order)) for k, rows in keys.items())


def _order(row: Record) -> tuple[int, int, int]:
    return row["at"], row["split"], row["id"]


class Verifier:
    def __init__(self, program: str, work: Path, sent: Sent) -> None:
        self.program, self.violations, self.looks, self.records = program, list[str](), 0, 0
        self._work, self.sent = work, sent
        self._readers: dict[str, Reader] = readers(program, work)
        self._seen = {name: Rows() for name in self._readers}

    def look(self) -> None:
        """While the job runs, or is dead."""
        self.looks += 1
        for name, reader in self._readers.items():
            found, seen = reader.rows(), self._seen[name]
            if found is not seen and found != seen:
                self._judge(name, reader, found, seen)
                self._seen[name] = found

    def _judge(self, name: str, reader: Reader, found: Rows, seen: Rows) -> None:
        alone = _part(found, 0) - _part(found, 1) + (_part(found, 1) - _part(found, 0))
        if alone:
            self._wrong(name, "half an epoch: no twin of", alone)
        twice = Rows({row: n - 1 for row, n in found.items() if n > 1})
        if twice:
            self._wrong(name, "more than once", twice)
        gone = seen - found if reader.grows else _less(name, seen, found)
        if gone:
            self._wrong(name, "seen, and no longer there", gone)

    def end(self) -> None:
        """After the last run, to the end of the inputs."""
        for reader in self._readers.values():
            reader.forget()
        self.look()
        found = {name: reader.rows() for name, reader in self._readers.items()}
        if self.program == "windows":
            self._windows(found["windows"], found["late"])
        else:
            wanted = Rows(
                (part, *row) for row in MODELS[self.program](self.sent) for part in (0, 1)
            )
            outputs = {"latest": _latest}.get(self.program, _same)(self.sent, wanted, found)
            for name, due in outputs.items():
                self._compare(name, found[name], due)
        letters = Rows((m,) for m in self.sent.malformed)
        self._compare("dead letters", dead(self._work), letters)

    def _compare(self, name: str, found: Rows, wanted: Rows) -> None:
        self.records += wanted.total()
        if wanted - found:
            self._wrong(name, "lost", wanted - found)
        if found - wanted:
            self._wrong(name, "too many", found - wanted)

    def _windows(self, shown: Rows, late: Rows) -> None:
        """Every row is in its window or is late, and only those that were sent late are late."""
        of_id = {row["id"]: row for row in self.sent.rows}
        wanted = Counter[Row]()
        for row in self.sent.rows:
            for part in (0, 1):
                key = (part, row["k"], row["at"] // SIZE * SIZE)
                wanted[*key, "n"] += 1
                wanted[*key, "total"] += row["v"]
        found = Counter[Row]()
        for part, k, start, n, total in shown.elements():
            found[part, k, start, "n"] += n
            found[part, k, start, "total"] += total
        if twice := Rows(r[:3] for r in shown.elements()) - Rows({r[:3] for r in shown}):
            self._wrong("windows", "emitted twice", twice)
        for part, id in late.elements():
            row = of_id[id]
            found[part, row["k"], row["at"] // SIZE * SIZE, "n"] += 1
            found[part, row["k"], row["at"] // SIZE * SIZE, "total"] += row["v"]
        if early := Rows({r: n for r, n in late.items() if not of_id[r[1]]["late"]}):
            self._wrong("late", "not late", early)
        self.records += 2 * len(self.sent.rows)
        if wanted != found:
            off = Counter({k: abs(wanted[k] - found[k]) for k in wanted | found})
            self._wrong("windows", "lost or too many", +off)

    def _wrong(self, name: str, what: str, rows: Counter[Any]) -> None:
        some = ", ".join(map(str, sorted(rows, key=repr)[:3]))
        self.violations.append(f"{self.program}/{name}: {what}: {rows.total()} rows: {some}")


def _part(rows: Rows, part: int) -> Rows:
    return Rows({row[1:]: n for row, n in rows.items() if row[0] == part})


def _less(name: str, seen: Rows, found: Rows) -> Rows:
    """Rows of a table of the newest values that went back: their key is gone, or its n is less."""
    if name == "totals":
        now = {row[:2]: row[2] for row in found}
        return Rows(row for row in seen if now.get(row[:2], 0) < row[2])
    now = {row[:3]: row[3] for row in found}  # the best: at each rank they get better only
    return Rows(row for row in seen if now.get(row[:3], -1) < row[3])


# What each program must give, without the part: plain Python of the rows that were sent.


def _joined(sent: Sent) -> Iterator[Row]:
    paid = {p["id"]: p for p in sent.payments}
    for order in sent.rows:
        payment = paid.get(order["id"])
        in_time = payment is not None and 0 <= payment["at"] - order["at"] <= WITHIN
        yield order["id"], order["v"], payment["v"] if payment and in_time else None


def _silences(sent: Sent) -> Iterator[Row]:
    for key, rows in sent.by_key():
        n = 0
        for row, after in zip(rows, [*rows[1:], None], strict=True):
            n += 1
            if after is None or after["at"] - row["at"] > GAP:
                yield key, n, row["at"]
                n = 0


def _totals(sent: Sent) -> Iterator[Row]:
    for key, values in _once(sent).items():
        yield key, len(values), sum(values)


def _once(sent: Sent) -> dict[str, list[int]]:
    rows = {row["id"]: row for row in sent.rows}
    found = defaultdict[str, list[int]](list)
    for row in rows.values():
        found[row["k"]].append(row["v"])
    return found


def _matches(sent: Sent) -> Iterator[Row]:
    for key, rows in sent.by_key():
        odd = list[Record]()
        for row in rows:
            if row["v"] % 2:
                odd.append(row)
                continue
            yield from ((key, o["id"], row["id"]) for o in odd if row["at"] - o["at"] <= WITHIN)
            odd = []


MODELS = {"joined": _joined, "timers": _silences, "latest": _totals, "many": _matches}


def _same(sent: Sent, wanted: Rows, outputs: Sequence[str]) -> dict[str, Rows]:
    return dict.fromkeys(outputs, wanted)


def _latest(sent: Sent, wanted: Rows, outputs: Sequence[str]) -> dict[str, Rows]:
    best = Rows(
        (part, key, rank, v)
        for key, values in _once(sent).items()
        for rank, v in enumerate(sorted(values, reverse=True)[:BEST], 1)
        for part in (0, 1)
    )
    return {"totals": wanted, "best": best}
