"""The file of a savepoint: what is at rest in it, and what it pins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import StateError
from headrace.state import sealed
from headrace.state.epochs import EpochLog
from headrace.state.manifest import Manifest
from headrace.state.savepoints import (
    Pins,
    Savepoint,
    SavepointFolder,
    creating,
    held_offsets,
)

# As the first version has written it; the manifest is that of `epochs`.
AT_REST: dict[str, Any] = {
    "name": "sale",
    "created": 1_735_689_600_000,
    "slots": 8,
    "manifest": {
        "epoch": 3,
        "token": 1,
        "attempt": "a1",
        "body": {
            "job": "shop",
            "clock": 7,
            "wall": 8,
            "splits": [
                {"id": 0, "input": "in", "name": "rows", "at": 12},
                {"id": 1, "input": "other", "name": "0", "at": {"not": "a number"}},
            ],
            "ops": {},
            "state": {"sum/values": {"runs": [["e.run", 64, 8, 1, 1, None, 0, 8]], "slots": []}},
            "outputs": {},
            "reads": {
                "in": {"id": "old", "kind": "log", "place": "p", "thing": "t"},
                "other": {"id": "other", "kind": "own", "place": "", "thing": ""},
            },
            "writes": {"out": {"id": "out", "kind": "files", "place": "o", "last": 3}},
        },
    },
}


def stored(folder: Path, name: str = "sale", **changed: Any) -> SavepointFolder:
    EpochLog(folder).open("shop", 8)
    savepoints = SavepointFolder(folder)
    sealed.make_folder(savepoints.path)
    content = {**AT_REST, "name": name, **changed}
    sealed.create_sealed(savepoints.path / f"{name}.json", "savepoint", content)
    return savepoints


def test_what_is_at_rest_is_read_as_ever(tmp_path: Path) -> None:
    savepoint = stored(tmp_path).read("sale")
    assert (savepoint.created, savepoint.slots) == (1_735_689_600_000, 8)
    assert savepoint.manifest == Manifest.from_json(AT_REST["manifest"])
    again = savepoint.to_json()
    assert again.keys() == AT_REST.keys()
    assert Savepoint.from_json(again) == savepoint


@pytest.mark.parametrize("gone", ["name", "slots", "manifest", "created"])
def test_what_it_lacks_is_named(tmp_path: Path, gone: str) -> None:
    savepoints = SavepointFolder(tmp_path)
    EpochLog(tmp_path).open("shop", 8)
    sealed.make_folder(savepoints.path)
    content = {key: value for key, value in AT_REST.items() if key != gone}
    sealed.create_sealed(savepoints.path / "sale.json", "savepoint", content)
    with pytest.raises(StateError, match="HR-STATE-004"):
        savepoints.read("sale")


def test_a_file_under_another_name_is_not_that_savepoint(tmp_path: Path) -> None:
    savepoints = stored(tmp_path)
    (savepoints.path / "sale.json").rename(savepoints.path / "other.json")
    with pytest.raises(StateError, match="it is the savepoint 'sale'"):
        savepoints.read("other")


def test_the_lowest_offsets_are_held_by_the_id_of_an_input(tmp_path: Path) -> None:
    assert held_offsets([], "old") is None
    savepoints = stored(tmp_path)
    pins = Pins(tmp_path)
    with pins.held() as found:
        assert found is not None
        assert held_offsets(found, "old") == {"rows": 12}
        assert held_offsets(found, "other") == held_offsets(found, "unknown") == {}
    body = AT_REST["manifest"]["body"]
    earlier = [{"id": 0, "input": "in", "name": "rows", "at": 5}]
    manifest = {**AT_REST["manifest"], "body": {**body, "splits": earlier}}
    stored(tmp_path, "earlier", manifest=manifest)
    with pins.held() as found:
        assert found is not None and held_offsets(found, "old") == {"rows": 5}
    savepoints.remove("earlier")
    with pins.held() as found:
        assert found is not None and held_offsets(found, "old") == {"rows": 12}
    (savepoints.path / "sale.json").write_bytes(b"damaged")
    with pins.held() as found:
        assert found == [None] and held_offsets(found, "old") == {}


def test_while_one_is_created_pins_are_not_told(tmp_path: Path) -> None:
    stored(tmp_path)
    with creating(tmp_path), Pins(tmp_path).held() as found:
        assert found is None
    with Pins(tmp_path).held() as found, Pins(tmp_path).held() as second:
        assert found and second
