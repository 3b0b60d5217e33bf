"""O: outputs: rows per second of each, against its library's own bulk writer.

Both write the same tables, an epoch each, one after the other. Ours is an output as a job uses it:
two tasks (threads here) stage their halves, and then the driver publishes the epoch, which is on
disk and exactly once when that returns. The library writes the table at once, with its own
settings: it need not sync files, nor record an epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench import kafka
from bench.digest import Digest, rounded
from bench.digest import digest as digest_of
from bench.measure import Contest, Failed, Lab, Sample
from bench.outputs import KINDS
from bench.rows import Row, speed

EPOCHS = 5  # the first of which is not counted
TARGET = 0.7


def rows(lab: Lab) -> list[Row]:
    found = []
    with ExitStack() as stack:
        places = {"brokers": stack.enter_context(kafka.broker()), "postgres": _postgres(stack)}
        for kind in KINDS:
            if kind == "postgresql" and places["postgres"] is None:
                found.append(Row(f"O {kind}", KINDS[kind].what, "", "not available", None))
                continue
            given = {**params(kind, lab.quick), **places}
            contest = lab.pairs(f"O {kind}", "o", given, digest, reps=2)
            found.append(_row(kind, contest))
    return found


def _postgres(stack: ExitStack) -> str | None:
    """The URL of a server that runs meanwhile, with its own settings; None if there is none."""
    from pytest import skip
    from tests.joins.postgres import postgres

    try:
        return stack.enter_context(postgres()).url
    except skip.Exception:
        return None


def _row(kind: str, contest: Contest) -> Row:
    ours, theirs = speed(contest.ours(rate)), speed(contest.theirs(rate))
    what = KINDS[kind].what
    return Row(f"O {kind}", what, ours, theirs, contest.ratio(rate), target=TARGET, equal=True)


def rate(sample: Sample) -> float:
    return float(sample.figures["rate"])


def params(kind: str, quick: bool = False) -> dict[str, Any]:
    return {"kind": kind, "rows": 10_000 if quick else KINDS[kind].rows}


def digest(params: Mapping[str, Any], place: Path) -> Digest:
    import pyarrow.parquet as pq

    found = KINDS[params["kind"]].read(params, place)
    (place / "out").mkdir()
    pq.write_table(found.select(["n", "sensor", "celsius"]), place / "out" / "rows.parquet")
    return digest_of(place, ["n::BIGINT", "sensor", rounded("celsius")])


def ours(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    from headrace.sinks import EpochWriter, open_sink

    kind, rows = KINDS[params["kind"]], params["rows"]
    uri, options = kind.opened(params, place)
    sink = open_sink(uri, kind.made(1, 0).schema, options, str(place / "job"), "rows")
    sink.check()
    sink.open()
    writer, parts = EpochWriter(1, lambda: None), params["cores"]
    staging = []

    def write(table: Any, epoch: int) -> None:
        began = time.perf_counter()
        size = -(-rows // parts)
        staged = tasks.map(
            lambda part: sink.stage(table.slice(part * size, size), epoch, f"a/{part}"),
            range(parts),
        )
        references = [one for found in staged for one in found]
        staging.append(time.perf_counter() - began)
        sink.publish(epoch, references, writer)

    with ThreadPoolExecutor(parts) as tasks:
        return {**_measured(kind, rows, write), "staging": staging}


def theirs(params: Mapping[str, Any], place: Path) -> dict[str, Any]:
    kind = KINDS[params["kind"]]
    return _measured(kind, params["rows"], kind.writer(params, place))


def _measured(kind: Any, rows: int, write: Any) -> dict[str, Any]:
    """Rows per second from the end of the first epoch on."""
    spent = []
    for epoch in range(EPOCHS):
        table = kind.made(rows, epoch)
        began = time.perf_counter()
        write(table, epoch)
        spent.append(time.perf_counter() - began)
    if len(spent) < 2:
        raise Failed("O: too few epochs")
    return {"rate": rows * (EPOCHS - 1) / sum(spent[1:]), "spent": spent}
