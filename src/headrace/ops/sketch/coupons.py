"""HyperLogLog in NumPy, all groups at once, in the portable format of Apache DataSketches.

A value is hashed as the library hashes a 64-bit integer (MurmurHash3); its coupon is 26 bits of
address and 6 bits of rank. A sketch is the set of its coupons while they are few, and then, per
address modulo 2**lg_k, the highest rank. Both are functions of the set of values alone, as is every
byte here: coupons are sorted, and the estimate of the order of arrival (HIP) is left out. So
partials merge to the same bytes however rows are divided.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.arrays import Column, Index, Mask, flat
from headrace.hashing import Hashes
from headrace.ops.agg.order import distinct
from headrace.ops.agg.span import stretches
from headrace.ops.sketch.sizes import too_large

Coupons = npt.NDArray[np.uint32]
Registers = npt.NDArray[np.uint8]  # a row per sketch

_LIST, _SET, _DENSE = 0, 1, 2  # what byte 7 calls the forms of a sketch
_OF_8_BITS = 2 << 2  # the kind of registers, beside the form
_SERIAL, _FAMILY = 1, 7
_COMPACT, _EMPTY, _OUT_OF_ORDER = 8, 4, 16
_HEADS = (8, 12, 40)  # bytes before the coupons or registers, by form
_IN_LIST = 7  # coupons in a list, at most
_ADDRESS = 26  # bits of a coupon; the others are the rank
_BLOCK = 1 << 14  # values hashed at a time, so that what is in between stays in cache

_SEED = np.uint64(9001)
_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_LENGTH = np.uint64(8)


def most_coupons(lg_k: int) -> int:
    """Coupons of a sketch that has no registers yet, at most: as the library has it."""
    return _IN_LIST if lg_k < 8 else (3 << (lg_k - 3)) >> 2


def coupons_of(hashes: Hashes) -> Coupons:
    """The coupon of each 64-bit value."""
    out = np.empty(len(hashes), np.uint32)
    for at in range(0, len(hashes), _BLOCK):
        low, high = words_of(hashes[at : at + _BLOCK])
        rank = np.minimum(_leading_zeros(high), 62) + 1
        address = (low & np.uint64((1 << _ADDRESS) - 1)).astype(np.uint32)
        out[at : at + _BLOCK] = rank.astype(np.uint32) << np.uint32(_ADDRESS) | address
    return out


def words_of(word: Hashes) -> tuple[Hashes, Hashes]:
    """MurmurHash3, x64, 128 bits, of the 8 bytes of each word: what sketches go by."""
    word = word * _C1
    word = ((word << np.uint64(31)) | (word >> np.uint64(33))) * _C2
    start = _SEED ^ _LENGTH
    low = (_SEED ^ word ^ _LENGTH) + start
    low, high = _finished(low), _finished(low + start)
    low += high
    return low, high + low


def _finished(word: Hashes) -> Hashes:
    word = (word ^ (word >> np.uint64(33))) * _F1
    word = (word ^ (word >> np.uint64(33))) * _F2
    return word ^ (word >> np.uint64(33))


def _leading_zeros(words: Hashes) -> npt.NDArray[np.int32]:
    """By the exponent of a double: 53 bits are held without rounding, the rest is rarely needed."""
    upper = words >> np.uint64(11)
    length = np.frexp(upper.astype(np.float64))[1]  # 0 for 0
    zeros: npt.NDArray[np.int32] = 53 - length
    for row in np.flatnonzero(upper == 0):
        zeros[row] = 64 - int(words[row]).bit_length()
    return zeros


@dataclass(frozen=True)
class HllSketches:
    """The sketches of a column: coupons or registers, where they lie in its bytes."""

    lg_k: int
    data: Registers
    starts: Index
    lengths: Index  # 0 for null

    @cached_property
    def forms(self) -> Index:
        """_LIST, _SET or _DENSE."""
        some = self.lengths > 0
        form = np.zeros(len(self.starts), np.int64)
        form[some] = self.data[self.starts[some] + 7] & 3
        return form

    @property
    def dense(self) -> Mask:
        mask: Mask = self.forms == _DENSE
        return mask

    @cached_property
    def sizes(self) -> Index:
        """Coupons of each, or registers."""
        rest = self.lengths - np.asarray(_HEADS)[self.forms]
        sizes: Index = np.where(self.dense, rest, np.maximum(rest, 0) // 4)
        return sizes

    def coupons(self, rows: Index) -> Coupons:
        """Those of the given rows, one row after the other."""
        size = self.sizes[rows]
        place = self.starts[rows] + np.asarray(_HEADS)[self.forms[rows]]
        first = stretches(np.zeros(len(rows), np.int64), size) * 4 + np.repeat(place, size)
        words = np.ndarray((max(len(self.data) - 3, 0),), "<u4", self.data, strides=(1,))
        return np.asarray(words[first])

    def registers(self, row: int) -> Registers:
        start = int(self.starts[row]) + _HEADS[_DENSE]
        return self.data[start : start + (1 << self.lg_k)]


def decoded(lg_k: int, column: Column) -> HllSketches:
    array = flat(column)
    _, offsets, data = array.buffers()
    stop = array.offset + len(array) + 1
    ends = np.frombuffer(offsets, "<i4", stop)[array.offset :].astype(np.int64)
    raw = np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)
    lengths = np.diff(ends)
    if array.null_count:
        lengths = np.where(array.is_valid().to_numpy(zero_copy_only=False), lengths, 0)
    return HllSketches(lg_k, raw, ends[:-1], lengths)


def encoded(
    lg_k: int, coupons: Coupons, group: Index, groups: int, dense: Registers, dense_groups: Index
) -> pa.Array:
    """The sketch of each group: of its coupons, which may come again; or of its registers too.

    `dense` has the registers of the groups `dense_groups` so far, and is written to.
    """
    k, most = 1 << lg_k, most_coupons(lg_k)
    counts = np.bincount(group, minlength=groups)
    slot_of = np.full(groups, -1, np.int64)  # of a group: its row in `registers`
    slot_of[dense_groups] = np.arange(len(dense_groups))
    maybe = np.flatnonzero((counts > most) & (slot_of < 0))
    slot_of[maybe] = len(dense_groups) + np.arange(len(maybe))
    registers = np.concatenate([dense, np.zeros((len(maybe), k), np.uint8)])
    slot = slot_of[group]
    into = slot >= 0
    address = slot[into] * k + (coupons[into] & np.uint32(k - 1))
    np.maximum.at(registers.reshape(-1), address, (coupons[into] >> _ADDRESS).astype(np.uint8))
    few = (registers[len(dense_groups) :] > 0).sum(axis=1) <= most
    slot_of[maybe[few]] = -1  # so many coupons, but perhaps the same few
    rest = slot_of[group] < 0
    pairs = distinct(group[rest] << 32 | coupons[rest].astype(np.int64))
    group, coupons = pairs >> 32, (pairs & 0xFFFFFFFF).astype(np.uint32)
    sizes = np.bincount(group, minlength=groups)
    back = np.flatnonzero((sizes > most) & (slot_of < 0))  # different coupons at equal addresses
    slot_of[back] = len(dense_groups) + np.searchsorted(maybe, back)
    sparse = sizes <= most
    coupons, sizes = coupons[sparse[group]], np.where(sparse, sizes, 0)
    return _bytes(lg_k, sizes, coupons, slot_of, registers)


def singles(lg_k: int, coupons: Coupons, present: Mask) -> pa.Array:
    """A sketch for each row, of its coupon if it has one; there is a coupon per row that has."""
    none = np.full(len(present), -1, np.int64)
    return _bytes(lg_k, present.astype(np.int64), coupons, none, np.zeros((0, 1 << lg_k), np.uint8))


def _bytes(
    lg_k: int, sizes: Index, coupons: Coupons, slot_of: Index, registers: Registers
) -> pa.Array:
    """Sketches as bytes: of `sizes` coupons each, or of the registers in row `slot_of`."""
    form = np.where(slot_of >= 0, _DENSE, np.where(sizes > _IN_LIST, _SET, _LIST))
    length = np.asarray(_HEADS)[form] + np.where(form == _DENSE, 1 << lg_k, 4 * sizes)
    ends = np.append(0, np.cumsum(length))
    starts = ends[:-1]
    out = np.zeros(int(ends[-1]) + 4, np.uint8)
    flags = np.where(form == _DENSE, _COMPACT | _OUT_OF_ORDER, _COMPACT)
    flags = np.where((form == _LIST) & (sizes == 0), flags | _EMPTY, flags)
    room = np.maximum(np.ceil(np.log2(np.maximum(sizes, 1) * 4 / 3)).astype(np.int64), 5)
    head: list[Any] = [
        np.asarray((2, 3, 10))[form], _SERIAL, _FAMILY, lg_k,
        np.where(form == _SET, room, np.where(form == _LIST, 3, 0)),
        flags, np.where(form == _LIST, sizes, 0), form | _OF_8_BITS,
    ]  # fmt: skip
    for place, byte in enumerate(head):
        out[starts + place] = byte
    words = np.ndarray((len(out) - 3,), "<u4", out, strides=(1,))
    words[starts[form == _SET] + 8] = sizes[form == _SET]
    first = np.repeat(starts + np.asarray(_HEADS)[form], sizes)
    words[first + 4 * stretches(np.zeros(len(sizes), np.int64), sizes)] = coupons
    for row in np.flatnonzero(slot_of >= 0):
        content, start = registers[slot_of[row]], int(starts[row])
        out[start + 8 : start + 40] = np.frombuffer(_summary(content), np.uint8)
        out[start + 40 : start + 40 + len(content)] = content
    if ends[-1] > np.iinfo(np.int32).max:
        raise too_large()
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def _summary(registers: Registers) -> bytes:
    """What the library stores beside registers: sums of 2**-rank, and how many have none."""
    number = np.bincount(registers, minlength=64).astype(np.float64)
    share = number * 0.5 ** np.arange(64)
    low, high = float(share[:32].sum()), float(share[32:].sum())
    return struct.pack("<3d2I", 0.0, low, high, int(number[0]), 0)


def of_sums(lg_k: int, low: float, high: float, zeros: int) -> bytes:
    """A sketch with these sums over its registers, which is all that an estimate goes by."""
    flags, form = _COMPACT | _OUT_OF_ORDER, _DENSE | _OF_8_BITS
    head = bytes((10, _SERIAL, _FAMILY, lg_k, 0, flags, 0, form))
    return head + struct.pack("<3d2I", 0.0, low, high, zeros, 0) + bytes(1 << lg_k)


def of_count(lg_k: int, count: int) -> bytes:
    """A sketch of so many coupons: an estimate goes by nothing else while they are few."""
    coupons = np.arange(count, dtype=np.uint32) | np.uint32(1 << _ADDRESS)
    none = np.zeros((0, 1 << lg_k), np.uint8)
    made = _bytes(lg_k, np.array([count]), coupons, np.array([-1]), none)
    return bytes(made[0].as_py())
