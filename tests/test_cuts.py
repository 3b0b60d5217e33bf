"""No constant of the product is forgotten when every cut is made tiny."""

from __future__ import annotations

import pytest

from headrace.ops.process import operator
from headrace.state import store
from tests.cuts import CUTS, OTHERS, make_tiny, numbers


def test_every_number_is_a_cut_or_is_said_to_be_something_else() -> None:
    found = {(n.module, n.name) for n in numbers()}
    both = [*CUTS.items(), *OTHERS.items()]
    listed = {(module, name) for module, names in both for name in names}
    assert found - listed == set()  # a new number: does it cut work? then tests/cuts.py
    assert listed - found == set()  # it is no longer there


def test_a_cut_is_tiny_wherever_it_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny(monkeypatch, 1)
    assert (operator.BLOCK, store.AT_ONCE, store.AT_ONCE, store.FEW) == (1, 1, 1, 2)
