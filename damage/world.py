"""A job with every kind of input, output and state, and a plain model of what it should give.

Everything lies under one folder: the job's, the log, the outputs, the files that are read. What
the model says does not depend on how rows are cut into epochs.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import headrace as hr
from headrace.clock import ManualClock
from headrace.log import segment
from headrace.sinks import merging
from headrace.sources import received
from headrace.sources.received import LineWriter
from headrace.state.runs import cache_of
from headrace.testing import Driver

Outputs = dict[str, Counter[Any]]
SCHEMA = "k string, v bigint, at bigint"
KEYS, ROWS = 5, 60
BATCH = 18  # rows of all inputs in an epoch


def row(i: int) -> dict[str, Any]:
    return {"k": f"k{i % KEYS}", "v": i, "at": i * 250}


def line(i: int) -> str:
    return "{not json\n" if i % 20 == 7 else json.dumps(row(i)) + "\n"


class Numbering(hr.KeyedProcess):
    """Numbers the rows of each key: a lost or doubled update of its state shows."""

    output = "k string, n bigint, sum bigint"

    n = hr.value(int, default=0)
    seen = hr.list_of(int)

    def on_row(self, row: Any, ctx: Any) -> Any:
        self.n += 1
        self.seen.append(row.v)
        return [(ctx.key, self.n, sum(self.seen))]


class World:
    """The places, the server and the clock of one job."""

    def __init__(self, root: Path) -> None:
        self.root, self.folder = root, root / "job"
        self.clock = ManualClock(1_000_000)
        self.server = Server()
        self.printed = ""
        self.log.create("typed", 2, SCHEMA, "k", segment_bytes=4_096)
        self.log.create("bytes", 1, segment_bytes=4_096)
        self.log.create("numbers", 1, segment_bytes=4_096)
        (root / "in").mkdir()
        self.send(0, ROWS // 2)
        self._receive()

    @property
    def log(self) -> hr.EmbeddedLog:
        return hr.EmbeddedLog(str(self.root / "log"))

    def send(self, first: int, last: int) -> None:
        """Rows for the inputs that grow while the job runs."""
        for i in range(first, last, 10):
            self.log.append("typed", [row(n) for n in range(i, i + 10)])
            self.log.append("bytes", [line(n).encode() for n in range(i, i + 10)])
        text = "".join(map(line, range(first, last)))
        (self.root / "in" / f"{first:04d}.json").write_text(text)

    def _receive(self) -> None:
        """All that the server has sent, in the job's folder before its first start."""
        writer = LineWriter(self.folder / "inputs" / "heard")
        for i in range(ROWS):
            writer.add(pa.array([line(i).rstrip("\n").encode()]))
        writer.finish()
        writer.close()

    def job(self) -> hr.Job:
        job, log = hr.Job("world", slots=2), str(self.root / "log")
        times = {"time": "at", "delay": "1s"}
        typed = job.read("log:typed", log=log, name="typed", **times)
        plain = {"schema": SCHEMA, "format": "json", **times}
        bytes_ = job.read("log:bytes", log=log, name="bytes", **plain)
        files = job.read(f"files:{self.root}/in", name="files", **plain)
        heard = job.read(self.server.uri, name="heard", **plain)
        table = job.read(hr.rows(map(row, range(ROWS)), SCHEMA), name="table", **times)
        made = job.read(hr.generate(10, row, ROWS, schema=SCHEMA), name="made", **times)

        windows = typed.key_by("k").window(hr.tumbling("2s"))
        counts = windows.agg(n=hr.count(), total=hr.sum("v"), name="counts")
        counts.write(f"files:{self.root}/parquet", name="parquet")
        counts.write("log:counts", log=log, key="k", partitions=2, name="counted")
        bytes_.where("v % 2 = 0").write(f"files:{self.root}/json", format="json", name="json")
        running = files.key_by("k").agg(n=hr.count(), unbounded=True, name="running")
        running.select("k", "n").write("collect:", name="ran")
        heard.write("collect:", name="spoken")
        heard.write("console:", format="json", name="console")
        numbered = table.key_by("k").process(Numbering(), unbounded=True, name="numbering")
        numbered.write("log:numbers", log=log, name="numbers")
        first = made.deduplicate("k", within="1h", name="first")
        first.write(f"files:{self.root}/firsts", name="firsts")
        return job

    def start(self, until: str | None = "end", max_batch: int = BATCH, **options: Any) -> Driver:
        forget()
        with self.printing():
            return Driver(
                self.job(), self.folder, until=until, max_batch=max_batch, tasks=1,
                clock=self.clock, **options,
            )  # fmt: skip

    def run(self, driver: Driver, most: int = 10_000) -> None:
        """Epochs until all inputs have ended, or `most`."""
        with self.printing():
            done = 0
            while done < most:
                self.clock.advance(1_000)
                if driver.epoch() is not None:
                    done += 1
                elif (driver.manifest is not None and driver.manifest.ended) or (
                    not join_receiver(driver.start.bundle.sources["heard"]) and self._late()
                ):
                    break

    def _late(self) -> bool:
        """Whether so much time has gone by that nothing more will come."""
        return self.clock.now() > 1_500_000

    @contextmanager
    def printing(self) -> Iterator[None]:
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text):
                yield
        finally:
            self.printed += text.getvalue()

    def outputs(self) -> Outputs:
        """What readers find; an error where something is wrong."""
        folder = str(self.folder)
        tables = {
            "parquet": hr.read_output(self.root / "parquet"),
            "json": hr.read_output(self.root / "json"),
            "firsts": hr.read_output(self.root / "firsts"),
            "ran": hr.collected(folder, "ran"),
            "spoken": hr.collected(folder, "spoken"),
        }
        found = {name: Counter(map(as_text, t.to_pylist())) for name, t in tables.items()}
        found["counted"] = Counter(as_text(r) for t in self._topic("counts") for r in t.to_pylist())
        values = (v for t in self._topic("numbers") for v in t["value"].to_pylist())
        found["numbers"] = Counter(as_text(json.loads(v)) for v in values)
        dead = hr.read_output(self.folder / "dead")
        found["dead"] = Counter(dead["input"].to_pylist()) if dead.num_rows else Counter()
        lines = {as_text(json.loads(text)) for text in self.printed.splitlines()}
        found["console"] = Counter(lines)  # at least once
        return found

    def _topic(self, name: str) -> Iterator[Any]:
        log = self.log
        return (t for p in log.latest(name) for _, t in log.read(name, p, 0))


def as_text(values: dict[str, Any]) -> str:
    return repr(tuple(str(v) for v in values.values()))


def expected() -> Outputs:
    """What the job gives, by the rows alone: no code of ours in it."""
    rows = [row(i) for i in range(ROWS)]
    good = [r for i, r in enumerate(rows) if i % 20 != 7]
    text = [as_text(r) for r in good]
    windows = Counter(map(as_text, _windows(rows)))
    return {
        "parquet": windows,
        "counted": windows,
        "json": Counter(as_text(r) for r in good if r["v"] % 2 == 0),
        "spoken": Counter(text),
        "console": Counter(text),
        "ran": Counter(as_text({"k": r["k"], "n": r["n"]}) for r in _numbered(good)),
        "numbers": Counter(map(as_text, _numbered(rows))),
        "firsts": Counter(map(as_text, rows[:KEYS])),
        "dead": Counter({name: ROWS // 20 for name in ("bytes", "files", "heard")}),
    }


def _windows(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    found: dict[tuple[str, int], list[int]] = {}
    for r in rows:
        found.setdefault((r["k"], r["at"] // 2_000 * 2), []).append(r["v"])
    for (key, second), values in found.items():
        start, end = (datetime.fromtimestamp(s, UTC) for s in (second, second + 2))
        yield {"k": key, "s": start, "e": end, "n": len(values), "total": sum(values)}


def _numbered(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    n, total = Counter[str](), Counter[str]()
    for r in rows:
        n[r["k"]] += 1
        total[r["k"]] += r["v"]
        yield {"k": r["k"], "n": n[r["k"]], "sum": total[r["k"]]}


def forget() -> None:
    """What this process remembers of files: a start is a process of its own."""
    cache_of.cache_clear()


def join_receiver(source: Any) -> bool:
    """Wait until a socket that ends has ended; False if it had before."""
    receiver = getattr(source, "_receiver", None)
    if receiver is None or not receiver._thread.is_alive():
        return False
    receiver._thread.join()
    return True


class Server:
    """Has sent all it had: whoever comes is held, or sent away with nothing."""

    def __init__(self) -> None:
        self.hold = True
        self._held: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        self.uri = f"socket:127.0.0.1:{self._socket.getsockname()[1]}"

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                if self.hold:
                    self._held.append(connection)
                else:
                    connection.close()

    def close(self) -> None:
        for connection in self._held:
            connection.close()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


@contextmanager
def small() -> Iterator[None]:
    """Constants so small that everything that happens in a long life happens in a short one."""
    none: Callable[[int], None] = lambda handle: None  # noqa: E731  nobody pulls the plug here
    with contextlib.ExitStack() as stack:
        for where, name, value in (
            (merging, "EVERY", 3), (merging, "FEW", 2),
            (received, "SEGMENT", 4_096), (segment, "SPACING", 256), (os, "fsync", none),
            (os, "fdatasync", none),
        ):  # fmt: skip
            stack.enter_context(patch.object(where, name, value))
        yield
