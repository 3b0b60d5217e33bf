"""What a job says that it guarantees: every kind of input and output, and the whole.

That an output says "at least once" where a crash really repeats rows, and only there, is asked of
every kind that can be written without a server.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import headrace as hr
from headrace.driver.start import guarantee_of
from headrace.guarantees import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    EXACTLY_ONCE,
    NOT_GUARANTEED,
    NOT_KNOWN,
    JobGuarantee,
    Offer,
)
from headrace.sinks.open import KINDS as SINKS
from headrace.sources.open import KINDS as SOURCES
from headrace.testing.output_drivers import EPOCHS, CrashingDriver, expected
from tests.sinks.lake_cases import loaded, sqlite_catalog
from tests.sinks.webhook_cases import receiver
from tests.sinks.writing import EVERY

SCHEMA = "id bigint, v string"
PG = "sql:postgresql://me@127.0.0.1:1/shop"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Where nothing is but what an input needs to be opened."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADRACE_LOG", str(tmp_path / "log"))


def places() -> None:
    Path("in").mkdir()
    Path("in/a.jsonl").write_text("")
    rows = pa.table({"id": [1], "v": ["a"]})
    hr.EmbeddedLog("log").create("in", schema=SCHEMA)
    write_deltalake("t", rows)
    library = loaded(Path.cwd())
    library.create_namespace("n")
    library.create_table("n.t", schema=rows.schema)
    library.close()


class Numbers(hr.Input):
    kind = "test numbers"
    schema = SCHEMA

    def latest(self, split: str) -> int:
        return 0

    def fetch(self, split: str, start: int, end: int) -> Any:
        return []


@dataclasses.dataclass(frozen=True)
class Told(hr.Output):
    kind: ClassVar[str] = "test told"

    def deliver(self, rows: pa.Table, producer: str, epoch: int) -> None:
        pass


@dataclasses.dataclass(frozen=True)
class Recorded(Told):
    kind: ClassVar[str] = "test recorded"

    def delivered(self) -> dict[str, int]:
        return {}


class Once(hr.Spout):
    output = SCHEMA

    def next_tuple(self, collector: Any) -> None:
        pass


class Replayed(Once):
    replays = True


def read(place: Any, **options: Any) -> hr.Job:
    job = hr.Job("j")
    options = {"schema": SCHEMA, **options} if isinstance(place, str) else options
    job.read(place, name="it", **options).write("collect:", name="out")
    return job


def spout(made: hr.Spout) -> hr.Job:
    topology = hr.Topology("t")
    topology.spout("it", made)
    topology.stream("it").write("collect:", name="out")
    return topology


def written(place: Any, **options: Any) -> hr.Job:
    job = hr.Job("j")
    job.read(hr.rows([{"id": 1, "v": "a"}])).write(place, name="it", **options)
    return job


INPUTS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: read("files:in"), EXACTLY_ONCE, "read again"),
    (lambda: read("log:in"), EXACTLY_ONCE, "read again from an offset"),
    (lambda: read("kafka://h/t"), EXACTLY_ONCE, "read again from an offset"),
    (lambda: read("kafka://h/t", on_data_loss="skip"), AT_MOST_ONCE, "on_data_loss='skip'"),
    (lambda: read("kafka://h/t", on_data_loss="record"), AT_MOST_ONCE, "on_data_loss='record'"),
    (lambda: read("delta:t"), EXACTLY_ONCE, "versions of the table"),
    (lambda: read("iceberg:n.t", catalog=sqlite_catalog(Path.cwd())),
     EXACTLY_ONCE, "versions of the table"),
    (lambda: read("sql:sqlite:f.db", table="t"), EXACTLY_ONCE, "stored in the job's folder"),
    (lambda: read(PG, table="t", growing="id"), EXACTLY_ONCE, "stored in the job's folder"),
    (lambda: read(PG, table="t", changes=True), EXACTLY_ONCE, "the server keeps changes"),
    (lambda: read("http:8080/orders"), AT_LEAST_ONCE, "Idempotency-Key"),
    (lambda: read("mqtt:h/t"), AT_LEAST_ONCE, "comes again"),
    (lambda: read("sse:http://h/e"), AT_MOST_ONCE, "without one"),
    (lambda: read("socket:h:99"), AT_MOST_ONCE, "does not send its lines again"),
    (lambda: read("listen:9999"), AT_MOST_ONCE, "does not know which lines"),
    (lambda: read("listen:9999", ack=True), AT_LEAST_ONCE, "sent again"),
    (lambda: read(hr.rows([{"id": 1, "v": "a"}])), EXACTLY_ONCE, "part of the program"),
    (lambda: read(hr.generate(10, lambda i: {"id": i})), EXACTLY_ONCE, "by its number"),
    (lambda: read(Numbers()), EXACTLY_ONCE, "the class promises"),
    (lambda: spout(Once()), AT_MOST_ONCE, "does not say that it replays"),
    (lambda: spout(Replayed()), EXACTLY_ONCE, "goes on after the last tuple"),
]  # fmt: skip

OUTPUTS: list[tuple[Callable[[], Any], str, str]] = [
    (lambda: written("files:out"), EXACTLY_ONCE, "appear with a record"),
    (lambda: written("collect:"), EXACTLY_ONCE, "appear with a record"),
    (lambda: written("log:t"), EXACTLY_ONCE, "one append with its number"),
    (lambda: written("kafka://h/t"), EXACTLY_ONCE, "read_committed"),
    (lambda: written("kafka://h/t", guarantee="at least once"), AT_LEAST_ONCE, "no transactions"),
    (lambda: written("sql:sqlite:f.db", table="t"), EXACTLY_ONCE, "one transaction"),
    (lambda: written(PG, table="t", mode="upsert", key="id"), EXACTLY_ONCE, "one transaction"),
    (lambda: written("delta:t"), EXACTLY_ONCE, "one commit"),
    (lambda: written("iceberg:n.t", catalog=sqlite_catalog(Path.cwd())),
     EXACTLY_ONCE, "one commit"),
    (lambda: written("webhook:http://h/p"), AT_LEAST_ONCE, "Idempotency-Key"),
    (lambda: written("mqtt:h/t"), AT_LEAST_ONCE, "no record of epochs"),
    (lambda: written("table:t"), EXACTLY_ONCE, "replaced if it is written again"),
    (lambda: written("console:"), AT_LEAST_ONCE, "printed again"),
    (lambda: written(Told()), AT_LEAST_ONCE, "Told does not say which epochs"),
    (lambda: written(Recorded()), EXACTLY_ONCE, "Recorded says which epochs"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "guarantee", "why"), INPUTS)
def test_what_an_input_guarantees_is_that_of_the_whole(made, guarantee, why):
    places()
    found = guarantee_of(made().program())
    (offer,) = [o for o in found.offers if o.role == "input"]
    assert (offer.name, offer.guarantee, found.whole) == ("it", guarantee, guarantee)
    assert why in offer.why
    assert ("input 'it' may lose rows" in found.why) == (guarantee == AT_MOST_ONCE)
    assert ("input 'it' may repeat rows" in found.why) == (guarantee == AT_LEAST_ONCE)


@pytest.mark.parametrize(("made", "guarantee", "why"), OUTPUTS)
def test_what_an_output_guarantees_is_that_of_the_whole(made, guarantee, why):
    found = guarantee_of(made().program())
    offer = next(o for o in found.offers if (o.role, o.name) == ("output", "it"))
    assert (offer.guarantee, found.whole) == (guarantee, guarantee) and why in offer.why
    assert ("output 'it' may repeat rows" in found.why) == (guarantee == AT_LEAST_ONCE)


def test_every_kind_is_in_the_tables():
    """Looked up by the kinds of URIs; what a program makes itself is named above."""
    places()
    reads = [n.uri for made, _, _ in INPUTS for n in made().program().sources()]
    assert {*SOURCES} <= {str(uri).partition(":")[0] for uri in reads}
    writes = [n.uri for made, _, _ in OUTPUTS for n in made().program().outputs()]
    assert {*SINKS} <= {str(uri).partition(":")[0] for uri in writes}


def test_the_weakest_makes_the_whole_and_both_weaknesses_are_named():
    exact, lossy = Offer("input", "a", EXACTLY_ONCE, "x"), Offer("input", "b", AT_MOST_ONCE, "y")
    twice = Offer("output", "c", AT_LEAST_ONCE, "z")
    assert JobGuarantee((exact,)).whole == EXACTLY_ONCE
    assert JobGuarantee((exact, lossy)).whole == AT_MOST_ONCE
    assert JobGuarantee((exact, twice)).whole == AT_LEAST_ONCE
    assert str(JobGuarantee((exact, lossy, twice))) == (
        f"if it is killed: {NOT_GUARANTEED}: input 'b' may lose rows and output 'c' may repeat "
        "rows\n  input a: exactly once: x\n  input b: at most once: y\n  output c: at least once: z"
    )


def test_what_cannot_be_opened_yet_is_not_known():
    job = read("files:nowhere")
    job.read("log:nowhere", schema=SCHEMA, name="topic").write("console:")
    found = guarantee_of(job.program())
    assert (found.whole, found.why) == (NOT_KNOWN, "input 'it', input 'topic' cannot be opened")
    assert ["nowhere" in o.why for o in found.offers] == [True, True, False, False, False]


def test_secrets_are_not_said():
    job = written("sql:postgresql://me:geheim@h/db", table="t")
    assert "geheim" not in str(guarantee_of(job.program()))
    assert "geheim" not in str(job.explain(guarantee_of(job.program())))


def posts(folder: Path) -> list[tuple[Any, ...]]:
    """What a receiver got that does not look at keys."""
    bodies = [body for path, _, body in receiver().attempts if path == str(folder)]
    return [tuple(json.loads(line).values()) for body in bodies for line in body.splitlines()]


@pytest.mark.parametrize("kind", EVERY)
def test_an_output_is_at_least_once_where_a_crash_repeats_rows(kind, tmp_path_factory):
    calm = CrashingDriver(EVERY[kind](tmp_path_factory.mktemp("calm")), None)
    calm.run()
    after = [i for i, name in enumerate(calm.passed, 1) if name.startswith("sink.publish")]
    folder = tmp_path_factory.mktemp("crash")
    case = EVERY[kind](folder)
    CrashingDriver(case, after[-1]).run()
    rows = Counter(posts(folder) if kind == "webhook" else case.rows())
    assert {*rows} == {*expected(EPOCHS)}
    assert (max(rows.values()) > 1) == (case.open().guarantee == AT_LEAST_ONCE)
