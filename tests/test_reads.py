"""Which columns a function reads; all of them where there is any doubt."""

from functools import partial

import pytest

from headrace.reads import columns_of_rows, columns_read, deletes, ignores, only_calls

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


# --- functions of a key and a list of rows


def listed(key, window, rows):
    return len(rows), sorted([row.b for row in rows])


def looped(key, window, rows):
    total = 0
    for row in rows:
        if row.a:
            total += row.c
    return total


def generated(key, window, rows):
    return sum(r.a for r in rows) / len(rows), {r.c: 1 for r in rows}


@pytest.mark.parametrize(
    ("fn", "read"),
    [
        (listed, ["b"]), (looped, ["a", "c"]), (generated, ["a", "c"]),
        (lambda key, window, rows: len(rows), ["a"]),  # a row needs a column to be one
    ],
)  # fmt: skip
def test_what_is_surely_read_of_rows(fn, read):
    assert columns_of_rows(fn, NAMES, 2) == read


def first_of(key, window, rows):
    return rows[0].a


def sorted_whole(key, window, rows):
    return sorted(rows)


def counted_each(key, window, rows):
    return sum(map(len, rows))


def rows_kept(key, window, rows):
    mine = rows
    return [r.a for r in mine]


def row_kept(key, window, rows):
    return [r for r in rows if r.a]


def row_unpacked(key, window, rows):
    return [a for a, b, c in rows]


def row_called(key, window, rows):
    return [one(r) for r in rows]


def rows_captured(key, window, rows):
    return (lambda: [r.a for r in rows])()


def row_captured(key, window, rows):
    return [(lambda: r.a)() for r in rows]


def nested(key, window, rows):
    return [q.a for q in [r for r in rows]]


def starred(key, window, rows):
    return [*rows]


def replacing(key, window, rows):
    return [r._replace(a=1) for r in rows]


def after_the_loop(key, window, rows):
    for row in rows:
        key = row.a
    return key, row


def looking_around(key, window, rows):
    return [locals() for row in rows]


@pytest.mark.parametrize(
    "fn",
    [
        first_of, sorted_whole, counted_each, rows_kept, row_kept, row_unpacked, row_called,
        rows_captured, row_captured, nested, starred, replacing, after_the_loop, looking_around,
        Caller(), len, one,
    ],
)  # fmt: skip
def test_in_doubt_all_columns_of_rows(fn):
    assert columns_of_rows(fn, NAMES, 2) == NAMES


class Doing:
    def looks(self, row, ctx):
        return row.a, ctx.time

    def ignores(self, row, ctx):
        return self.looks(row, None)

    def hands_on(self, row, ctx):
        return [row.a for _ in ctx]

    def closes_over(self, row, ctx):
        return [x for x in row.b if ctx.time]

    def sees_all(self, row, ctx):
        return locals()

    def takes_more(self, row, ctx, *more):
        return row.a

    def deletes(self, row, ctx):
        def later():
            del self.n

        later()

    def asks_to_delete(self, row, ctx):
        delattr(self, "n")


@pytest.mark.parametrize("name", [n for n in vars(Doing) if not n.startswith("__")])
def test_what_surely_does_nothing_with_an_argument(name):
    found = ignores(getattr(Doing, name), place=2, count=3)
    assert found == (name in ("ignores", "deletes", "asks_to_delete"))


@pytest.mark.parametrize("name", [n for n in vars(Doing) if not n.startswith("__")])
def test_what_deletes_attributes(name):
    assert deletes(getattr(Doing, name)) == ("delete" in name)


def test_what_is_no_function_deletes_nothing():
    assert not deletes(3) and not deletes(len)


def emits(self, tup, collector):
    for word in tup.text.split():
        collector.emit((word,))


def emits_later(self, tup, collector):
    emit = collector.emit
    emit(tup)


def fails(self, tup, collector):
    collector.emit(tup)
    collector.fail(tup)


def passes_it_on(self, tup, collector):
    emits(self, tup, collector)
    collector.emit(tup)


def closes_over_it(self, tup, collector):
    collector.emit(tup)
    return lambda: collector.emit(tup)


def looks_around(self, tup, collector):
    collector.emit(locals())


def replaces_it(self, tup, collector):
    collector.emit(tup)
    collector = tup
    collector.emit(tup)


@pytest.mark.parametrize(
    ("fn", "only"),
    [
        (emits, True),
        (emits_later, True),
        (fails, False),
        (passes_it_on, False),
        (closes_over_it, False),
        (looks_around, False),
        (replaces_it, False),
        (partial(emits, None), False),
    ],
)
def test_a_method_is_all_that_is_used_of_an_argument(fn, only):
    assert only_calls(fn, "emit", place=2, count=3) is only
