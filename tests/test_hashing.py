"""Hashes of keys: what they must never do is change."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PlanError
from headrace.hashing import first_hash, hash_keys, slot_range, slots_of, tasks_of

ints = st.integers(-(2**63), 2**63 - 1)
texts = st.one_of(
    st.text(max_size=20),
    st.builds(lambda text, times: (text * times)[:400], st.text(min_size=1), st.integers(50, 200)),
)
MASK = 2**64 - 1
quick = settings(max_examples=40, deadline=None)


def hashes(values: list, kind: pa.DataType) -> list[int]:
    return hash_keys([pa.array(values, kind)]).tolist()


def mix(x: int) -> int:
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def hash_of_bytes(data: bytes) -> int:
    """The hash of a text as one would write it for one text."""
    total = len(data) * 0x9E3779B97F4A7C15
    for i in range(0, len(data), 8):
        total += mix(int.from_bytes(data[i : i + 8], "little") ^ mix(i // 8 + 1))
    return mix(total & MASK)


def test_hashes_are_those_of_the_first_release():
    assert hashes([0, 1, -1, 2**62], pa.int64()) == [
        16294208416658607535, 10451216379200822465, 16490336266968443936, 47939714376772075,
    ]  # fmt: skip
    assert hashes(["", "a", "sensor-17", "é" * 100], pa.string()) == [
        16294208416658607535, 12061278371830571785, 13855364350567510455, 4931985916680149145,
    ]  # fmt: skip
    assert hashes([None], pa.int64()) == hashes([None], pa.string()) == [7959387128338277753]
    assert hash_keys([pa.array([1]), pa.array(["a"])]).tolist() == [16588104012195887091]
    assert hashes([1.5], pa.float64()) == [15481881892811333770]


@quick
@given(st.lists(texts, max_size=12))
def test_a_text_hashes_as_the_sum_of_its_words(values):
    assert hashes(values, pa.string()) == [hash_of_bytes(v.encode()) for v in values]


@quick
@given(st.lists(ints, max_size=12))
def test_an_integer_hashes_as_splitmix64(values):
    assert hashes(values, pa.int64()) == [mix(v & MASK) for v in values]


@quick
@given(st.lists(st.integers(-128, 127) | st.none(), max_size=20))
def test_the_width_of_an_integer_does_not_matter(values):
    expected = hashes(values, pa.int64())
    assert all(hashes(values, t) == expected for t in (pa.int8(), pa.int16(), pa.int32()))


@pytest.mark.parametrize("kind", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_unsigned_integers_hash_as_signed_ones(kind):
    assert hashes([0, 5, 255], kind) == hashes([0, 5, 255], pa.int64())


@quick
@given(st.lists(texts | st.none(), max_size=20), st.data())
def test_chunks_slices_and_encodings_do_not_matter(values, data):
    cut = data.draw(st.integers(0, len(values)))
    whole = pa.array(values, pa.string())
    padded = pa.array(["padding", *values, "padding"], pa.string()).slice(1, len(values))
    expected = hash_keys([whole]).tolist()
    forms = [
        pa.chunked_array([whole[:cut], whole[cut:]], pa.string()), padded,
        whole.cast(pa.large_string()), whole.cast(pa.binary()), whole.cast(pa.string_view()),
        whole.dictionary_encode(), padded.dictionary_encode("encode"),
    ]  # fmt: skip
    for form in forms:
        assert hash_keys([form]).tolist() == expected


@quick
@given(st.lists(st.tuples(ints | st.none(), texts | st.none()), max_size=10))
def test_rows_hash_by_themselves(rows):
    kinds = (pa.int64(), pa.string())
    columns = [pa.array([r[i] for r in rows], t) for i, t in enumerate(kinds)]
    together = hash_keys(columns).tolist()
    alone = [
        hash_keys([pa.array([r[i]], t) for i, t in enumerate(kinds)]).tolist()[0] for r in rows
    ]
    assert together == alone


@quick
@given(st.sets(ints, max_size=100))
def test_different_integers_never_share_a_hash(values):
    assert len(set(hashes(list(values), pa.int64()))) == len(values)


def test_the_order_of_columns_matters():
    a, b = pa.array([1, 2]), pa.array([3, 4])
    assert (hash_keys([a, b]) != hash_keys([b, a])).all()


def test_zeros_and_nans_are_one_key_each():
    assert len(set(hashes([0.0, -0.0], pa.float64()))) == 1
    bits = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    assert len(set(hash_keys([pa.array(bits)]).tolist())) == 1
    assert hashes([1.5], pa.float32()) == hashes([1.5], pa.float64())


def test_the_unit_of_a_time_and_the_width_of_a_date_or_decimal_do_not_matter():
    at = dt.datetime(2024, 2, 29, 12, 30, 15)
    units = [hashes([at, None], pa.timestamp(u)) for u in ("s", "ms", "us", "ns")]
    assert all(u == units[0] for u in units)
    assert hashes([at], pa.timestamp("us", "UTC")) == units[0][:1]
    day = dt.date(1969, 12, 31)
    assert hashes([day], pa.date32()) == hashes([day], pa.date64())
    sums = [Decimal("-12.34"), Decimal("0.00"), None]
    widths = [pa.decimal32(9, 2), pa.decimal64(18, 2), pa.decimal128(38, 2), pa.decimal256(50, 2)]
    assert len({tuple(hashes(sums, w)) for w in widths}) == 1


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, False, None], pa.bool_()),
        ([b"abc", b"xyz", None], pa.binary(3)),
        ([dt.time(1, 2, 3), dt.time(0), None], pa.time64("us")),
        ([dt.timedelta(1), dt.timedelta(0), None], pa.duration("ms")),
    ],
)
def test_every_key_type_tells_its_values_apart(values, kind):
    array = pa.array([values[0], *values], kind)
    assert len(set(hash_keys([array.slice(1)]).tolist())) == 3


def test_without_rows_or_columns_there_is_little_to_hash():
    assert hash_keys([]).tolist() == []
    assert hash_keys([], rows=2).tolist() == [0, 0]
    for kind in (pa.int32(), pa.string(), pa.decimal128(9, 2), pa.null(), pa.bool_()):
        assert hash_keys([pa.array([], kind)]).tolist() == []
    assert hash_keys([pa.chunked_array([], pa.int64())]).tolist() == []
    assert hashes([None], pa.null()) == hashes([None], pa.int64())


def test_a_nested_value_is_refused_as_a_key():
    with pytest.raises(PlanError) as caught:
        hash_keys([pa.array([[1], [2]])])
    assert caught.value.code == "HR-KEY-001"


@quick
@given(st.lists(st.integers(0, 2**64 - 1), max_size=50), st.integers(1, 300), st.integers(1, 40))
def test_slots_and_tasks_grow_with_the_hash_and_agree(values, slots, tasks):
    hashed = np.sort(np.array(values, np.uint64))
    slot, task = slots_of(hashed, slots), tasks_of(hashed, slots, tasks)
    assert (np.diff(slot) >= 0).all() and (np.diff(task) >= 0).all()
    for s, t in zip(slot.tolist(), task.tolist(), strict=True):
        lo, hi = slot_range(t, tasks, slots)
        assert 0 <= lo <= s < hi <= slots


@quick
@given(st.integers(1, 300), st.integers(1, 40))
def test_tasks_share_out_all_slots(slots, tasks):
    ranges = [slot_range(t, tasks, slots) for t in range(tasks)]
    assert [s for lo, hi in ranges for s in range(lo, hi)] == list(range(slots))


@quick
@given(st.integers(1, 1000), st.data())
def test_a_slot_begins_at_its_first_hash(slots, data):
    slot = data.draw(st.integers(0, slots - 1))
    first = first_hash(slot, slots)
    assert slots_of(np.array([first], np.uint64), slots).tolist() == [slot]
    if slot:
        assert slots_of(np.array([first - 1], np.uint64), slots).tolist() == [slot - 1]
    assert first_hash(slots, slots) == 2**64


@settings(max_examples=5, deadline=None)
@given(st.integers(0, 2**40))
def test_consecutive_keys_spread_evenly_over_slots(start):
    numbers = np.arange(start, start + 16_000)
    for column in (pa.array(numbers), pa.array([f"sensor-{n}" for n in numbers])):
        counts = np.bincount(slots_of(hash_keys([column]), 16), minlength=16)
        assert counts.min() > 800 and counts.max() < 1_200
