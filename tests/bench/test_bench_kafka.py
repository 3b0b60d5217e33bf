"""K on a broker: ours gives what DuckDB finds in the lines, and what Bytewax gives."""

from __future__ import annotations

import duckdb
import pytest
from bench.data import DISORDER
from bench.digest import digest, rounded
from bench.jobs import k
from tests.kafka.running import broker

from bench import kafka, with_bytewax
from headrace.testing.drive import Driver

pytestmark = pytest.mark.usefixtures("kafka")
EXPECTED = {
    k.READ: 'SELECT id, area, sensor, celsius, smoke, "at" FROM rows WHERE id % 1000 = 0',
    k.WINDOW: f"""SELECT sensor, epoch_ms("at"::TIMESTAMPTZ) // {k.SPAN} * {k.SPAN} AS start,
        count(*) AS n, sum(celsius) AS total FROM rows GROUP BY ALL""",
}


@pytest.fixture
def given(tmp_path, monkeypatch):
    """Parameters of a tiny run, its topic filled."""
    monkeypatch.setattr("bench.data.CACHE", tmp_path / "cache")

    def filled(kind):
        params = k.params(4_000, batches=3, keys=20, rate=100, kind=kind)
        topic = f"bench-{abs(hash(tmp_path)):x}"
        kafka.fill(broker().address, topic, params["folder"])
        return {**params, "brokers": broker().address, "topic": topic, "cores": 2}

    return filled


def ours(params, place, monkeypatch):
    def drain(job, place, max_batch, cores):
        driver = Driver(job, place / "job", tasks=cores, max_batch=max_batch)
        while driver.epoch() is not None:
            pass
        return {}

    monkeypatch.setattr("bench.with_headrace.drain", drain)
    place.mkdir()
    k.ours(params, place)
    return k.digest(params, place)


@pytest.mark.parametrize("kind", [k.READ, k.WINDOW])
def test_ours_gives_what_duckdb_finds(kind, given, tmp_path, monkeypatch):
    params = given(kind)
    place = tmp_path / "expected"
    (place / "out").mkdir(parents=True)
    with duckdb.connect() as base:
        base.execute("SET TimeZone = 'UTC'")
        base.execute(f"CREATE VIEW rows AS FROM read_json('{params['folder']}/*.json')")
        base.execute(f"COPY ({EXPECTED[kind]}) TO '{place}/out/rows.parquet'")
    if kind == k.READ:
        wanted = digest(place, ["id", "area", "sensor", rounded("celsius"), "smoke", '"at"'])
    else:
        closed = f"start + {k.SPAN} <= {params['newest'] - DISORDER}"
        wanted = digest(place, ["sensor", "start", "n", rounded("total")], where=closed)

    assert ours(params, tmp_path / "ours", monkeypatch) == wanted
    assert wanted.rows == 12 if kind == k.READ else wanted.rows > 100


@pytest.mark.skipif(not with_bytewax.there(kafka=True), reason="`make bench` puts Bytewax there")
def test_bytewax_gives_the_same(given, tmp_path, monkeypatch):
    params = given(k.WINDOW)
    place = tmp_path / "bytewax"
    place.mkdir()

    k.bytewax(params, place)

    assert k.digest(params, place) == ours(params, tmp_path / "ours", monkeypatch)
