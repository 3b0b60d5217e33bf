"""What is sent to the programs: drawn rows, in time order but for a little, some malformed.

Rows come while the job runs and while it is dead. What was sent is written down for the verifier.
"""

from __future__ import annotations

import heapq
import json
import os
import random
from pathlib import Path
from typing import Any

import headrace as hr
from chaos.verifier import Record, Sent

STEP, JITTER = 100, 900  # milliseconds from row to row, and how far two may change places
KEYS, LATE, POISON, REPEATED = 12, 0.02, 0.01, 0.1
BEHIND = 20_000  # milliseconds that a late row is late


class Feed:
    def __init__(self, program: str, place: Path, draw: random.Random) -> None:
        self.sent, self._program, self._draw = Sent(), program, draw
        self._place, self._files = place, 0
        self._due = list[tuple[int, int, int]]()  # payments to come: time, order, amount
        (place / "files").mkdir(parents=True)
        self._log = hr.EmbeddedLog(str(place))
        for topic in () if program == "latest" else ("rows", "payments"):
            self._log.create(topic, 2)

    def send(self, rows: int) -> None:
        """So many more rows, and what belongs to them."""
        made = [self._row() for _ in range(rows)]
        if self._program == "latest":
            known = self.sent.rows
            again = [self._draw.choice(known) for _ in range(round(REPEATED * rows)) if known]
            self._write([*map(_line, made), *map(_line, again)])
        else:
            self._append("rows", [(row["split"], _line(row)) for row in made])
        if self._program == "joined":
            self._pay()

    def _row(self) -> Record:
        id, draw = len(self.sent.rows), self._draw
        late = self._program == "windows" and id > 300 and draw.random() < LATE
        at = STEP * id - BEHIND if late else STEP * id + draw.randrange(JITTER)
        row = {"id": id, "k": f"k{draw.randrange(KEYS)}", "v": 100_000 * draw.randrange(1_000) + id,
               "at": at, "split": id % 2, "late": late}  # fmt: skip
        self.sent.rows.append(row)
        if draw.random() < 0.8:
            due = at + JITTER + draw.randrange(7_000)
            heapq.heappush(self._due, (due, id, draw.randrange(1_000)))
        return row

    def _pay(self) -> None:
        """The payments up to now, in order of time."""
        now, lines = STEP * len(self.sent.rows), list[tuple[int, bytes]]()
        while self._due and self._due[0][0] <= now:
            at, id, v = heapq.heappop(self._due)
            payment = {"id": id, "k": "", "v": v, "at": at}
            lines.append((len(self.sent.payments) % 2, _line(payment)))
            self.sent.payments.append(payment)
        if lines:
            self._append("payments", lines)

    def _append(self, topic: str, lines: list[tuple[int, bytes]]) -> None:
        lines = [more for line in lines for more in self._poisoned(line)]
        places = [place for place, _ in lines]
        self._log.append(topic, [line for _, line in lines], partitioner=lambda *_: places)

    def _poisoned(self, line: tuple[int, bytes]) -> list[tuple[int, bytes]]:
        """The line, and now and then before it one that nobody can read."""
        if self._draw.random() >= POISON:
            return [line]
        malformed = b'{"id": %d, "k": "k1", "v": broken' % len(self.sent.malformed)
        self.sent.malformed.append(malformed)
        return [(line[0], malformed), line]

    def _write(self, lines: list[bytes]) -> None:
        """One file, which appears whole."""
        lines = [more for line in lines for _, more in self._poisoned((0, line))]
        self._files += 1
        made = self._place / f"{self._files}.made"
        made.write_bytes(b"".join(line + b"\n" for line in lines))
        os.rename(made, self._place / "files" / f"{self._files:06d}.json")


def _line(row: Any) -> bytes:
    return json.dumps({name: row[name] for name in ("id", "k", "v", "at")}).encode()
