"""Lines of text: split without Python per line, cut between lines."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.schema import schema_of
from headrace.sources import lines as module
from headrace.sources.layout import Extent
from headrace.sources.lines import Lines, split_lines

TEXT = st.lists(
    st.sampled_from([b"", b"a", b"{}", b"\xff\x00", b"x" * 30, b" ", b"\r"]), max_size=12
)


@given(parts=TEXT, ends=st.sampled_from([b"\n", b"\r\n"]), last=st.booleans(), blank=st.booleans())
def test_splitting_gives_each_line_and_where_it_begins(parts, ends, last, blank):
    block = ends.join(parts) + (ends if last else b"")
    if not block:
        return

    values, starts = split_lines(block, keep_blank=blank)

    wanted, at = [], 0
    for line in block.split(b"\n")[: None if not block.endswith(b"\n") else -1]:
        clean = line.removesuffix(b"\r") if line else line
        if clean or blank:
            wanted.append((clean, at))
        at += len(line) + 1
    assert list(zip(values.to_pylist(), starts.tolist(), strict=True)) == wanted


@given(parts=st.lists(st.integers(0, 40), min_size=1, max_size=30), data=st.data())
@settings(max_examples=50, deadline=None)
def test_a_file_cut_anywhere_gives_every_line_once(tmp_path_factory, parts, data):
    path = tmp_path_factory.mktemp("lines") / "f"
    path.write_bytes(b"".join(b"x" * n + b"%d\n" % i for i, n in enumerate(parts)))
    layout, size = Lines("text", schema_of("value string")), path.stat().st_size

    edges = [0]
    while edges[-1] < size:
        position = data.draw(st.integers(edges[-1] + 1, size))
        cut = size if position == size else layout.align(str(path), position, edges[-1], size)
        assert position <= cut <= size
        edges.append(cut)
    found = []
    for a, b in pairwise(edges):
        for table, offsets in layout.read(str(path), Extent("f", a, b, (0, 0)), 100 + a):
            found += list(zip(table.column(0).to_pylist(), offsets.tolist(), strict=True))

    lines = path.read_bytes().split(b"\n")[:-1]
    starts = [100 + sum(len(x) + 1 for x in lines[:i]) for i in range(len(lines))]
    assert found == list(zip(lines, starts, strict=True))


def test_a_line_longer_than_a_block_is_one_record(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 10)
    monkeypatch.setattr(module, "PROBE", 7)
    path = tmp_path / "f"
    path.write_bytes(b"short\n" + b"l" * 95 + b"\nend\n")
    layout = Lines("text", schema_of("value string"))

    chunks = list(layout.read(str(path), Extent("f", 0, 106, (0, 0)), 0))

    assert [v for t, _ in chunks for v in t.column(0).to_pylist()] == [b"short", b"l" * 95, b"end"]
    assert layout.align(str(path), 8, 0, 106) == 102
    assert layout.reach(str(path), 0, 104, whole=False) == 102
