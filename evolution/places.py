"""Where the rows of a chain come from: topics, files, rows of the program, made ones, a socket.

Rows of a place are in order of time, and so are those of each of its partitions. Which partition
a row is in goes by its key `k`, so that rows of a key are in order.
"""

from __future__ import annotations

import json
import random
import socket
import threading
import time
from pathlib import Path
from typing import Any

import headrace as hr

ROW = "id bigint, k string, p bigint, x bigint, y bigint, at bigint, made bigint"
PLACES = {
    "log": ("t1", "t2", "t3"), "files": ("f1", "f2"), "rows": ("r1",), "generate": ("g1",),
    "socket": ("s1",),
}  # fmt: skip
ALL = [(kind, place) for kind, places in PLACES.items() for place in places]
BOUNDED = ("rows", "generate")
PARTITIONS = {"t2": 2, "t3": 3, "g1": 2}
SECONDS = 120  # after which what was sent over a loopback socket is lost
Row = dict[str, Any]


def partition_of(place: str, row: Row) -> int:
    return "abc".index(row["k"]) % PARTITIONS.get(place, 1)


class Places:
    """The rows of every place, and the ways in which they get there."""

    def __init__(self, root: Path, random: random.Random) -> None:
        self.root, self.random = root, random
        self.rows: dict[str, list[Row]] = {place: [] for _, place in ALL}
        self.log = hr.EmbeddedLog(str(root / "log"))
        self.server: Server | None = None
        self.grown = set[str]()  # places that were at their end, and have more
        for kind, place in ALL:
            if kind == "log":
                self.log.create(place, partitions=PARTITIONS.get(place, 1), schema=ROW)
            elif kind == "files":
                (root / "in" / place).mkdir(parents=True)

    def address(self) -> str:
        if self.server is None:
            self.server = Server(self.rows["s1"])
        return self.server.address

    def close(self) -> None:
        if self.server is not None:
            self.server.close()

    def sent(self, place: str, life: int) -> list[Row]:
        """What an input can have read there."""
        if place != "s1" or self.server is None:
            return self.rows[place]
        ids = {*self.server.lines.get(life, ())}
        return [row for row in self.rows[place] if row["id"] in ids]

    def grow(self, kind: str, place: str, count: int) -> None:
        held, new = self.rows[place], list[Row]()
        for n in range(len(held), len(held) + count):
            new.append(self._row(place, n, (held + new)[-1]["at"] if held + new else None))
        if kind == "log":
            self._append(place, new)
        elif kind == "files" and new:
            self._write(place, new, len(held) + count)
        held += new

    def _row(self, place: str, n: int, before: int | None) -> Row:
        r = self.random
        at = 0 if before is None else before + r.choice((1000, 1000, 2000))
        k = "ab"[n % 2] if place == "g1" else r.choice("abc")  # its splits take turns
        base = 1_000_000 * [p for _, p in ALL].index(place)
        return {"id": base + n, "k": k, "p": r.choice((-7, 2**31 - 1)), "x": r.randrange(6),
                "y": r.randrange(5), "at": at, "made": at + 60_000}  # fmt: skip

    def _append(self, place: str, new: list[Row]) -> None:
        for number in range(PARTITIONS.get(place, 1)):
            part = [row for row in new if partition_of(place, row) == number]
            if part:
                self.log.append(place, part, partition=number)

    def _write(self, place: str, new: list[Row], count: int) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in new)
        files = sorted((self.root / "in" / place).iterdir())
        if files and self.random.random() < 0.5:  # of the newest file only: the order stays
            with files[-1].open("a") as file:
                file.write(lines)
        else:
            (self.root / "in" / place / f"{count:06}.json").write_text(lines)

    def make_again(self, topic: str) -> None:
        """The same records, and yet another topic."""
        self.log.delete(topic)
        self.log.create(topic, partitions=PARTITIONS.get(topic, 1), schema=ROW)
        self._append(topic, self.rows[topic])


class Server:
    """Sends every line once, to whoever is connected then."""

    def __init__(self, rows: list[Row]) -> None:
        self._rows, self._socket = rows, socket.create_server(("127.0.0.1", 0))
        self._sent, self._held = 0, list[socket.socket]()
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self.hang_up, self._accepted = False, False
        self.lines = dict[int, list[int]]()  # ids sent in each life of the input
        self.life = 0
        self.counts = dict[int, int]()
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        self._socket.close()
        for one in self._held:
            one.close()

    def listen_for(self, life: int, hang_up: bool) -> None:
        """The next connection is for this life of the input."""
        self.life, self.hang_up, self._accepted = life, hang_up, False

    def receive(self, source: Any) -> None:
        """Until the input has stored all lines, and knows of the end if there is one."""
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            accepted, end = self._accepted, source.latest("lines")  # connects, at first
            stored = end >= self.counts.get(self.life, 0)
            if accepted and stored and (source.received.ended or not self.hang_up):
                return
            time.sleep(0.001)
        raise TimeoutError("the socket input has not received what was sent")

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            rows, life = self._rows[self._sent :], self.life
            text = "".join(json.dumps(row) + "\n" for row in rows).encode()
            self.lines.setdefault(life, []).extend(row["id"] for row in rows)
            self.counts[life] = self.counts.get(life, 0) + len(rows)
            self._sent += len(rows)
            self._accepted = True
            connection.sendall(text)
            if self.hang_up:
                connection.close()
            else:
                self._held.append(connection)
