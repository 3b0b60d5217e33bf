"""Every output of the benchmarks holds what its library's own writer writes, at a tiny size."""

from __future__ import annotations

import pytest
from bench.jobs import o
from bench.outputs import KINDS
from tests.databases import server
from tests.kafka.running import broker

ROWS, EPOCHS = 300, 3


@pytest.mark.parametrize("kind", KINDS)
def test_both_write_the_same_rows(kind, tmp_path, monkeypatch, request):
    monkeypatch.setattr(o, "EPOCHS", EPOCHS)
    places = {}
    if kind == "kafka":
        request.getfixturevalue("kafka")
        places = {"brokers": broker().address}
    if kind == "postgresql":
        places = {"postgres": server().url}
    params = {**o.params(kind), "rows": ROWS, "cores": 2, **places}
    found = []
    for who in (o.ours, o.theirs):
        place = tmp_path / f"{who.__name__}_{abs(hash(tmp_path)):x}"
        place.mkdir()
        assert who(params, place)["rate"] > 0
        found.append(o.digest(params, place))

    assert found[0].rows == ROWS * EPOCHS
    assert found[0] == found[1]
