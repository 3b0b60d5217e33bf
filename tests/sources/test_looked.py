"""Inputs as a look at a program reads them."""

from __future__ import annotations

import pickle

import pytest

import headrace as hr
from headrace.sources.contract import Range
from headrace.sources.looked import ENDLESS_ROWS, Unforgetting, is_cut, to_look_at


def test_a_generator_makes_its_rows_at_once_and_has_an_end():
    endless = hr.generate(5, lambda i: {"i": i})
    looked = to_look_at(endless, "numbers")
    assert (looked.rate, looked.total, looked.latest("0")) == (None, ENDLESS_ROWS, ENDLESS_ROWS)
    assert is_cut(endless)
    ends = hr.generate(5, lambda i: {"i": i}, total=7)
    assert to_look_at(ends, "numbers").latest("0") == 7
    assert not is_cut(ends)


def test_an_input_made_in_the_program_is_the_same_but_forgets_nothing():
    class Forgetful:
        bounded, schema = False, None

        def latest(self, split: str) -> int:
            return 3

        def commit(self, offsets: object) -> None:
            raise AssertionError("it may not forget")

    looked = to_look_at(Forgetful(), "own")
    assert (looked.bounded, looked.latest("0"), looked.commit({"0": 1})) == (False, 3, None)


def test_it_travels():
    looked = pickle.loads(pickle.dumps(Unforgetting(hr.rows([{"v": 1}]))))
    (chunk,) = looked.read(Range("0", 0, 1))
    assert chunk[0].to_pylist() == [{"v": 1}]


def test_rows_topics_and_files_are_read_as_they_are():
    rows = hr.rows([{"v": 1}])
    assert to_look_at(rows, "rows") is rows
    assert to_look_at("log:feed", "feed") == "log:feed"
    assert to_look_at("files:in", "in") == "files:in"


def test_a_socket_is_refused():
    with pytest.raises(hr.InputError, match=r"HR-INPUT-018 input 'lines' is a socket"):
        to_look_at("socket:localhost:9", "lines")
