"""X: a bolt in another language, a process that speaks Storm's multilang protocol.

One task, in process, so that one child process and its messages are all that is measured: each
tuple is sent as JSON, emitted again and acked, and the program flushes after every tuple, as
Storm's own libraries do. There is nothing to compare with in the same run; the target is a figure.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.measure import OURS, Failed, Lab
from bench.rows import Row, speed

TARGET = 20.0  # thousand tuples a second
PROGRAM = """
import json, os, sys
def receive():
    lines = []
    for line in sys.stdin:
        if line == "end\\n":
            return json.loads("".join(lines))
        lines.append(line)
    sys.exit()
def send(*messages):
    sys.stdout.write("".join(json.dumps(message) + "\\nend\\n" for message in messages))
    sys.stdout.flush()
receive()
send({"pid": os.getpid()})
while True:
    tup = receive()
    if tup["stream"] == "__heartbeat":
        send({"command": "sync"})
        continue
    emit = {"command": "emit", "tuple": tup["tuple"], "anchors": [tup["id"]]}
    send({**emit, "need_task_ids": False}, {"command": "ack", "id": tup["id"]})
"""


def rows(lab: Lab) -> list[Row]:
    batch, batches = (20_000, 3) if lab.quick else (50_000, 6)
    params = {"batch": batch, "batches": batches}
    rates = []
    for _ in range(lab.pairs_of(3)):
        figures = lab.one("X", "x", OURS, params).figures
        if figures["emitted"] != batch * batches:
            raise Failed(f"X: {figures['emitted']:,} tuples came back of {batch * batches:,}")
        rates.append(figures["rate"])
    rate = statistics.median(rates)
    what = f"tuples through one process in Python by multilang, {batch / 1e3:g} k a batch"
    return [Row("X", what, speed(rate), "none", rate / 1e3, target=TARGET, unit="k/s")]


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    import time

    import headrace as hr
    from headrace.look.in_process import Driver

    batch, batches = params["batch"], params["batches"]
    topology = hr.Topology("x")
    tuples = [{"word": f"word {i}", "n": i} for i in range(batch * batches)]
    topology.spout("words", hr.rows(tuples))
    bolt = hr.ShellBolt([sys.executable, "-c", PROGRAM], "word string, n bigint")
    topology.bolt("again", bolt).shuffle("words")
    topology.bolt("out", "collect:").shuffle("again")
    driver = Driver(topology, place / "job", max_batch=batch)
    driver.epoch()  # it starts the process
    began = time.perf_counter()
    driver.drain()
    lasted = time.perf_counter() - began
    driver.close()
    emitted = driver.output("out").num_rows
    return {"rate": batch * (batches - 1) / lasted, "emitted": emitted}
