"""Which columns a function reads; all of them where there is any doubt."""

from functools import partial

import pytest

from headrace.runtime.reads import columns_read

NAMES = ["a", "b", "c"]


def one(row):
    return row.b


def two(row):
    total = row.c
    for _ in range(3):
        total += row.a if total else -row.a
    return {"total": total, "text": str(row.c).upper()}


def comprehended(row):
    limit = row.a
    return [x for x in row.b if x > limit]


@pytest.mark.parametrize(
    ("fn", "read"),
    [
        (one, ["b"]),
        (two, ["a", "c"]),
        (comprehended, ["a", "b"]),
        (lambda r: (r.c, r.b), ["b", "c"]),
    ],
)
def test_what_is_surely_read(fn, read):
    assert columns_read(fn, NAMES) == read


def whole(row):
    return row


def by_place(row):
    return row[0]


def passed_on(row):
    return one(row), row.a


def replaced(row):
    return row._replace(a=row.b)


def closed_over(row):
    return [lambda: row.c, row.a]


def kept(row):
    again = row
    return again.a, row.b


def overwritten(row):
    row = row.a
    return row.b


def unpacked(row):
    first, *_ = row
    return first, row.a


def by_name(row):
    return getattr(row, "b"), row.a  # noqa: B009


def looks_around(row):
    return locals()["row"].c, row.a


def constant(row):
    return 1


def unknown(row):
    return row.a + row.d


def with_default(row, extra=1):
    return row.a


def many(*rows):
    return rows[0].a


class Caller:
    def __call__(self, row):
        return row.a


@pytest.mark.parametrize(
    "fn",
    [
        whole, by_place, passed_on, replaced, closed_over, kept, overwritten, unpacked, by_name,
        looks_around, constant, unknown, with_default, many, Caller(), partial(one), len,
    ],
)  # fmt: skip
def test_in_doubt_all_columns(fn):
    assert columns_read(fn, NAMES) == NAMES
