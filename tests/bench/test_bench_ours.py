"""Jobs of the benchmarks that set ours against itself or Bytewax: in one process, without Spark."""

from __future__ import annotations

import pytest
from bench.jobs import b, s, w, y

from bench import with_bytewax
from headrace.testing.drive import Driver


@pytest.fixture
def in_process(tmp_path, monkeypatch):
    """Run ours of a job; its digest."""
    monkeypatch.setattr("bench.data.CACHE", tmp_path / "cache")

    def drain(job, place, max_batch, cores):
        driver = Driver(job, place / "job", tasks=cores, max_batch=max_batch)
        while driver.epoch() is not None:
            pass
        return {}

    monkeypatch.setattr("bench.with_headrace.drain", drain)

    def run(module, params, name):
        place = tmp_path / name
        place.mkdir()
        module.ours({**params, "cores": 2}, place)
        return module.digest(params, place)

    return run


@pytest.mark.parametrize("size", [s.SLIDING, s.TUMBLING])
def test_s_gives_what_duckdb_finds(in_process, size):
    params = s.params(2_000, batches=3, keys=3, hours=1.5, size=size)

    found = in_process(s, params, "sliding")

    assert found.rows > 5_000
    assert found == s.expected(params)


@pytest.mark.parametrize("fold", s.FOLDS)
def test_s_folds_to_what_duckdb_finds(in_process, fold):
    params = {**s.fold_params(1_000, batches=3, keys=3), "fold": fold}

    found = in_process(s, params, "folded")

    assert found.rows > 400
    assert found == s.expected(params)


def test_y_is_within_its_error_exact_or_approximate(in_process):
    params = y.params(4_000, batches=8, keys=3)

    exact, about = (in_process(y, {**params, "exact": e}, str(e)) for e in (True, False))

    assert exact.rows > 3 and exact.checksum == y.WITHIN
    assert about == exact


def test_w_ends_with_early_results_as_it_does_without(in_process):
    params = w.params(1_000, batches=45, keys=20)

    early, final = (
        in_process(w, {**params, "early": early}, str(early)) for early in (True, False)
    )

    assert final.rows == 2 * 20
    assert early == final


@pytest.mark.skipif(not with_bytewax.there(), reason="`make bench` puts Bytewax there")
def test_b_gives_what_bytewax_gives(in_process, tmp_path):
    params = b.params(4_000, batches=3, keys=20)
    place = tmp_path / "bytewax"
    place.mkdir()

    figures = b.bytewax(params, place)

    assert figures["batches"][0][0] == 12_000
    assert in_process(b, params, "ours") == b.digest(params, place)
