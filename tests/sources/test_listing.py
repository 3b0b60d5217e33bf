"""The list of files read: positions that mean the same for ever."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import refusal

from headrace.sources import listing as listings
from headrace.sources.layout import Extent
from headrace.sources.listing import Listing

NAMES = st.sampled_from(["a", "b", 'it\'s "c"; d', "../e", "é\n"])
GROWTH = st.lists(st.lists(st.tuples(NAMES, st.integers(1, 50)), max_size=4), max_size=8)


def grown(listing: Listing, step: list[tuple[str, int]]) -> list[Extent]:
    """Extents that go on where each file was left."""
    ends = {name: last.end for name, last in listing._last.items()}
    extents = []
    for name, by in step:
        start = ends.get(name, 3)
        ends[name] = start + by
        extents.append(Extent(name, start, start + by, (7, 9)))
    return extents


def units(listing: Listing, start: int, end: int) -> list[tuple[str, int]]:
    """The sequence unit by unit."""
    found = []
    for stretch in listing.stretches(start, end):
        assert stretch.at == start + len(found)
        found += [(stretch.extent.path, u) for u in range(stretch.extent.start, stretch.extent.end)]
    return found


@given(steps=GROWTH, torn=st.binary(max_size=20).filter(lambda b: b"\n" not in b))
@settings(max_examples=40, deadline=None)
def test_the_sequence_is_what_was_appended_whoever_reads_it(tmp_path_factory, steps, torn):
    path = tmp_path_factory.mktemp("list") / "files"
    model: list[tuple[str, int]] = []
    listing = Listing(path)
    for step in steps:
        extents = grown(listing, step)
        listing.append(extents)
        model += [(e.path, u) for e in extents for u in range(e.start, e.end)]
        if path.exists():
            with path.open("ab") as file:
                file.write(torn)  # a crash while the next line was being written
        listing = Listing(path)

        assert listing.end() == len(model)
        assert units(listing, 0, listing.end()) == model
    third = listing.end() // 3
    assert units(listing, third, 2 * third) == model[third : 2 * third]


def test_two_drivers_that_see_the_same_file_lay_it_down_once(tmp_path):
    one, two = Listing(tmp_path / "files"), Listing(tmp_path / "files")

    one.append([Extent("a", 0, 10, (0, 0))])
    two.append([Extent("a", 0, 10, (0, 0)), Extent("b", 0, 5, (0, 0))])
    one.append([Extent("b", 0, 5, (0, 0)), Extent("a", 10, 12, (0, 0))])

    sequence = units(one, 0, 17)
    assert one.end() == 17
    assert units(two, 0, 17) == sequence == units(Listing(tmp_path / "files"), 0, 17)
    assert len(set(sequence)) == 17


def test_growth_of_one_file_does_not_lengthen_what_must_be_searched():
    listing = Listing(None)
    for i in range(50):
        listing.append([Extent("a", i, i + 1, (0, 0))])

    assert [s.extent for s in listing.stretches(0, 50)] == [Extent("a", 0, 50, (0, 0))]


def test_a_list_of_much_growth_is_shortened_when_it_is_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(listings, "MANY_LINES", 20)
    listing = Listing(tmp_path / "files")
    for i in range(30):
        listing.append([Extent("a" if i < 20 else "b", i % 20, i % 20 + 1, (1, i))])
    sequence, size = units(listing, 0, 30), (tmp_path / "files").stat().st_size

    again = Listing(tmp_path / "files")
    again.append([Extent("a", 20, 25, (1, 1))])

    assert (tmp_path / "files").stat().st_size < size / 5
    assert units(again, 0, 30) == units(Listing(tmp_path / "files"), 0, 30) == sequence
    assert again.last("b").end == 10


@pytest.mark.parametrize("place", [0, 5, 12, 30])
def test_a_damaged_list_is_refused(tmp_path, place):
    Listing(tmp_path / "files").append([Extent("a", 0, 10, (0, 0)), Extent("b", 0, 5, (0, 0))])
    content = bytearray((tmp_path / "files").read_bytes())
    content[place] ^= 1
    (tmp_path / "files").write_bytes(content)

    assert refusal(Listing, tmp_path / "files").code == "HR-INPUT-009"


def test_a_position_beyond_the_list_is_refused(tmp_path):
    listing = Listing(tmp_path / "files")
    listing.append([Extent("a", 0, 10, (0, 0))])

    assert refusal(listing.stretches, 5, 11).code == "HR-INPUT-009"


def test_a_full_disk_leaves_the_list_as_it_was(tmp_path, monkeypatch):
    listing = Listing(tmp_path / "files")
    listing.append([Extent("a", 0, 10, (0, 0))])
    monkeypatch.setattr("os.write", lambda handle, content: len(content) // 2)

    assert refusal(listing.append, [Extent("b", 0, 5, (0, 0))]).code == "HR-INPUT-003"
    assert Listing(tmp_path / "files").end() == 10
