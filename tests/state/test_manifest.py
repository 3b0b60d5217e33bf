"""The manifest's JSON: written by earlier versions, read and written back byte for byte."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.clock import MAX_TIME, MIN_TIME
from headrace.errors import StateError
from headrace.state import sealed
from headrace.state.epochs import EpochLog
from headrace.state.manifest import (
    FIRST,
    LIVE,
    InputFacts,
    Manifest,
    OutputFacts,
    Split,
    StepFacts,
)

MANIFESTS = Path(__file__).parent / "manifests"


def text_of(name: str) -> str:
    return (MANIFESTS / f"{name}.json").read_text(encoding="utf-8").rstrip("\n")


def read(name: str) -> Manifest:
    return Manifest.from_json(json.loads(text_of(name)))


@pytest.mark.parametrize("name", ["plain", "gone_back"])
def test_a_manifest_is_written_back_byte_for_byte(name):
    written = json.dumps(read(name).to_json(), separators=(",", ":"), ensure_ascii=False)
    assert written == text_of(name)


def test_a_manifest_is_read_by_attribute():
    manifest = read("plain")
    assert (manifest.epoch, manifest.token, manifest.job) == (2, 2, "story")
    first = Split(0, "in", "0", 20, 1_700_000_579_000, 1_700_000_001_000, LIVE)
    assert manifest.splits[0] == first
    step = manifest.ops["win"]
    assert isinstance(step, StepFacts) and (step.kind, step.version) == ("WindowAgg", 1)
    assert manifest.reads["in"].time == "at" and manifest.reads["in"].about["kind"] == "log"
    assert manifest.writes["files"].place == "/data/files" and manifest.writes["files"].last == 2
    assert manifest.timeline == FIRST and manifest.dropped is manifest.rewound is None


def test_a_manifest_of_a_job_that_went_back():
    manifest = read("gone_back")
    assert manifest.forks == ((FIRST, 4),) and manifest.timeline != FIRST
    assert manifest.rewound == {"/data/log/out": {FIRST: 5}}
    assert manifest.stays() == manifest.rewound and manifest.acknowledged == {}


EMPTY = ("outputs", "reads", "writes")


@pytest.mark.parametrize("name", ["clock", "splits", "ops", *EMPTY])
def test_a_manifest_that_lacks_what_every_version_wrote_is_corrupt(name, tmp_path):
    log = EpochLog(tmp_path)
    (tmp_path / "epochs").mkdir()
    content = json.loads(text_of("plain"))
    del content["body"][name]
    sealed.create_sealed(log._path(2), "manifest", content)
    with pytest.raises(StateError, match=name) as caught:
        log.read(2)
    assert caught.value.code == "HR-STATE-004"


def test_what_an_older_version_did_not_write_has_a_default():
    step = {"kind": "WindowAgg", "fingerprint": "f"}
    splits = [{"id": 3, "input": "in", "name": "0", "at": 5, "of a later version": 1}]
    body = {"splits": splits, "ops": {"win": step}, "clock": 1, **{name: {} for name in EMPTY}}
    manifest = Manifest.from_json({"epoch": 1, "token": 1, "attempt": "a", "body": body})
    assert manifest.splits == (Split(3, "in", "0", 5, MIN_TIME, 0, LIVE, None),)
    assert manifest.ops == {"win": StepFacts(MIN_TIME, MAX_TIME, MAX_TIME, 0, "WindowAgg", "f")}
    assert manifest.timeline == FIRST and manifest.windows == {}
    assert manifest.free_split_id() == 4


def test_what_a_newer_version_writes_is_left_out():
    content = json.loads(text_of("plain"))
    content["body"]["later"] = {"unknown": 1}
    content["body"]["ops"]["win"]["later"] = 1
    assert Manifest.from_json(content) == read("plain")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (InputFacts, '{"id": "in", "kind": "log", "thing": "x", "time": null}'),
        (InputFacts, '{"id": "in", "kind": "log"}'),
        (OutputFacts, '{"id": "out", "kind": "files", "place": "/data", "last": 7}'),
        (StepFacts, '{"watermark": 1, "next": 2, "wake": 3, "held": 4, "kind": "", '
                    '"fingerprint": "f", "shape": {"kind": "Fold"}, "version": 1}'),
    ],
)  # fmt: skip
def test_facts_are_written_back_byte_for_byte(kind, text):
    assert json.dumps(kind.from_json(json.loads(text)).to_json()) == text
