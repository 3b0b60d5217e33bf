"""The offset's JSON, which Spark compares as text: read and written back byte for byte."""

from __future__ import annotations

import json

import pytest

from headrace.epoch.values import Offset
from headrace.state.manifest import Split

SPLIT = (
    '{"id":4,"input":"in","name":"0","at":30,"watermark":1700000779000,"seen":1700000002000,'
    '"state":"live","memory":{"of":"Mark","state":[1]}}'
)


@pytest.mark.parametrize(
    "text",
    [
        '{"epoch":0,"clock":0,"splits":[]}',
        f'{{"epoch":6,"clock":1700000002000,"splits":[{SPLIT}]}}',
        f'{{"epoch":7,"clock":1700000003000,"lag":0,"splits":[{SPLIT}]}}',
    ],
)
def test_an_offset_is_written_back_byte_for_byte(text):
    offset = Offset.from_json(json.loads(text))
    assert json.dumps(offset.to_json(), separators=(",", ":")) == text


def test_an_offset_is_read_by_attribute():
    offset = Offset.from_json({"epoch": 7, "clock": 3, "lag": 5, "splits": [json.loads(SPLIT)]})
    assert (offset.epoch, offset.clock, offset.lag) == (7, 3, 5)
    (split,) = offset.splits
    assert isinstance(split, Split) and (split.id, split.at) == (4, 30)
