"""Both sides of row U write the same rows, at a tiny size."""

from __future__ import annotations

import pytest
from bench.jobs import u
from tests.kafka.running import broker


@pytest.mark.parametrize("kind", u.KINDS)
def test_both_write_the_same_rows(kind, tmp_path, request):
    params = u.params(kind, quick=True)
    if kind == "kafka":
        request.getfixturevalue("kafka")
        params["brokers"] = broker().address
    found = []
    for who in (u.ours, u.theirs):
        place = tmp_path / f"{who.__name__}_{abs(hash(tmp_path)):x}"
        place.mkdir()
        assert who(params, place)["epochs"] == params["epochs"]
        found.append(u.digest(params, place))

    assert found[0].rows == params["rows"] * params["epochs"]
    assert found[0] == found[1]
