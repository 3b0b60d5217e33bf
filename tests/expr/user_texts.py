"""Texts as users write them, by family, with the hard values that they are computed from.

Spark gets each text as it stands here. NULLED are the texts whose division by zero is null with
us (documented) and an error there, so they have no zero among their divisors.
"""

from __future__ import annotations

import datetime as dt
from itertools import product

import pyarrow as pa

from tests.expr.golden_texts import GOLDEN
from tests.expr.hard_cases import DOUBLES, INTEGERS, TEXTS, TIMES, UTC, _table

NAN, INF = float("nan"), float("inf")

ON_BITS = [
    "a & b", "a | b", "a ^ b", "~a", "~d", "c & 255", "d & c", "d | 1", "c ^ d", "a & b | c ^ d",
    "a | b & c", "a ^ b & c", "1 + c & 7", "c & 1 = 1", "~a & b", "c << -1", "d >>> -1",
    "-a & 3", "a & null",
    *(f"{x} {sign} {n}" for x, sign, n in product(
        "abcd", ("<<", ">>", ">>>"), ("0", "1", "3", "31", "32", "33", "63", "64", "a", "c"))),
    "shiftleft(c, 3)", "shiftright(d, 70)", "shiftrightunsigned(c, -1)", "1 << c", "1 + 1 << 2",
    "c << 1 << 2", "c << 1 & 6", "c << null", "bit_count(c & 15)", "bit_count(~d)",
]  # fmt: skip

ON_ROUNDING = [
    *(f"round({x}, {n})" for x, n in product("abcd", (-1, -2, -3, -9, -15, 0, 2))),
    *(f"{word}({x}, {n})" for word, x, n in product(("ceil", "floor"), "abcd", (-1, -12, 0, 2))),
    *(f"pmod({x}, {y})" for x, y in product("acd", ("3", "-3", "cast(-7 as bigint)", "100"))),
    "log(c)", "log(2, c)", "log(10, d)", "log(d, 10)", "log(c, 1)", "log(null, 2)", "log(2, null)",
]  # fmt: skip

_MIDDLE = "if(abs(x) < 1e14 or isnan(x), x, 0.5D)"
ON_DOUBLES = [
    *(f"{word}({_MIDDLE}, {n})" for word, n in product(("ceil", "floor"), (-2, 0, 1, 2, 15))),
    *(f"{word}({x}, {n})" for word, x, n in product(("ceil", "floor", "round"), "pq",
                                                     (-9, -1, 0, 1, 2, 5))),
    "pmod(x, 3)", "pmod(x, -3)", "pmod(x, 0.7D)", "log(x)", "log(2, x)", "log(x, 2)", "log(x, y)",
    "log(1, x)", "ceil(x % 10, 1)", "-0.0D", "pow(-0.0D, -7)", "0.30000000000000004D",
    "x + 9007199254740993D", "coalesce(x, 9223372036854775807)", "2.2250738585072014E-308D",
]  # fmt: skip

ON_TEXTS = [
    "s like any ('a%', '%b', 'h_llo')", "s not like any ('a%', '%o')", "s like all ('%a%', '%b%')",
    "s not like all ('%a%', '%é%')", "s like some ('né')", "not s like any ('a%', '%o')",
    "s ilike any ('HELLO%', '%É')", "s not ilike any ('HELLO%', '%O')", "s ilike all ('H%', '%O')",
    "s not ilike all ('H%', '%O')", "s like 'a/%b/_c' escape '/'", "s not like 'a/%b%' escape '/'",
    "s like 'back\\\\slash' escape '/'", "s like '%//%' escape '/'", "s ilike 'A!%B%' escape '!'",
    "s like 'a%%b%_c' escape '%'", "s like 'a\\%b%'", "s like '%\\\\\\\\%'", "like(s, 'a/%%', '/')",
    "s not ilike 'A!%B%' escape '!'", "s like '' escape '/'", "s like any ('')",
    "trim(both 'a' from s)", "trim(leading 'ah' from s)", "trim(trailing 'cx' from s)",
    "trim(both from s)", "trim(leading from s)", "trim(trailing from s)", "trim('é' from s)",
    "trim(both t from s)", "trim(both '' from s)", "trim(s)",
    "position('a' in s)", "position(t in s)", "position('l', s)", "position('l', s, 4)",
    "locate('a', s)", "locate('l', s, 4)", "locate(t, s, n)", "locate('', s, n)", "locate(s, s, 2)",
    "locate('é', s)", "locate('b', s, null)", "locate(t, s, 0)", "locate('😃', s, 2)",
    "locate('a', s, 2147483647)", "locate(null, s, 0)", "locate(null, s)",
    "initcap(s)", "initcap(concat(s, ' ', t))", "initcap('ǆabc ßx ﬁx ΣΑΣ')",
    "sha2(s, 256)", "sha2(s, 0)", "sha2(z, 256)", "sha2(s, 224)", "sha2(s, 384)",
    "sha2(z, 512)", "sha2(s, 512)", "sha2(s, 1)", "sha2(s, -1)", "sha2(s, n)", "sha2(s, null)",
    "sha2(t, 256 + n)", "sha2(concat(s, t), 512)", "lpad(s, 6)", "rpad(s, 6)", "lpad(s, n)",
    "rpad(s, n)", "replace(s, 'a')", "replace(s, t)", "replace(s, 'l', 'L')",
    "regexp_extract(s, '([a-z]+)([0-9]+)')", "regexp_extract(s, '^(.)')",
]  # fmt: skip

_DATES = [
    None, "29/02/2024 23:59", "28/02/2023 00:00", "31/12/1969 23:59", "01/01/0001 00:00",
    "31/12/9999 23:59", "15/10/1582 12:00", "01/03/1900 01:02",
]  # fmt: skip
_WRONG = ["", "29/02/2023 00:00", "29/02/2024 24:00", "29/02/2024 23:60", "32/01/2024 00:00",
          "1/2/2024 00:00", " 29/02/2024 23:59", "29/02/2024 23:59 ", "29-02-2024 23:59",
          "29/13/2024 00:00", "٢٩/02/2024 23:59", "29/02/2024 23:59\n"]  # fmt: skip
DATED = _table(
    "s string, iso string, u bigint",
    [(s, None if s is None else f"{s[6:10]}-{s[3:5]}-{s[:2]} {s[11:]}:07", u)
     for s, u in zip(_DATES, [None, 0, -1, 1_709_251_199, -62_135_596_800, 253_402_300_799, 1, 59],
                     strict=True)],
)  # fmt: skip
ON_DATED = [
    "to_timestamp(s, 'dd/MM/yyyy HH:mm')", "to_date(s, 'dd/MM/yyyy HH:mm')", "to_timestamp(iso)",
    "unix_timestamp(s, 'dd/MM/yyyy HH:mm')", "unix_timestamp(iso)", "to_unix_timestamp(iso)",
    "to_date(left(iso, 10))", "to_date(left(iso, 7), 'yyyy-MM')", "to_date(left(iso, 4), 'yyyy')",
    "to_timestamp(replace(left(iso, 10), '-'), 'yyyyMMdd')",
    "to_timestamp(concat(replace(iso, ' ', 'T'), '.120'), 'yyyy-MM-dd\\'T\\'HH:mm:ss.SSS')",
    "to_timestamp(concat(iso, '.123456'), 'yyyy-MM-dd HH:mm:ss.SSSSSS')",
    "unix_timestamp(concat(iso, '.900'), 'yyyy-MM-dd HH:mm:ss.SSS')",
    "to_timestamp(replace(replace(replace(iso, '-'), ':'), ' '), 'yyyyMMddHHmmss')",
    "from_unixtime(u)", "from_unixtime(u, 'dd/MM/yyyy HH:mm')", "from_unixtime(u, 'yyyyMMdd')",
    "from_unixtime(u, 'HH\\'h\\'mm')", "to_date('2024-02-29')",
    "to_timestamp('2024-02-29 12:30:00')",
    "unix_timestamp('2024-02-29', 'yyyy-MM-dd')", "to_date(null)", "to_timestamp(null, 'yyyy')",
]  # fmt: skip

_ZONES = ["Europe/Rome", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC",
          "Asia/Kathmandu", "America/Sao_Paulo", "Pacific/Apia"]  # fmt: skip
_PARTS = ["year", "yearofweek", "quarter", "month", "week", "day", "dayofweek", "dow",
          "dayofweek_iso", "dow_iso", "doy", "hour", "minute", "second", "YEARS"]  # fmt: skip
ON_TIMES = [
    *(f"extract({p} from {x})" for p, x in product(_PARTS, ("at", "day"))), "date_part('s', at)",
    "datepart('doy', day)",
    *(f"to_utc_timestamp(at, '{z}')" for z in _ZONES),
    *(f"trunc({x}, '{u}')" for x, u in product(
        ("day", "at"), ("year", "yyyy", "YY", "quarter", "month", "mon", "MM", "week"))),
    "trunc('2024-02-29', 'MM')", "day + 1", "1 + day", "day - 1", "day + n", "day - n",
    "cast(day - since as int)", "cast(date '2024-03-01' - day as int)", "unix_timestamp(at)",
    "unix_timestamp(day)", "to_timestamp(day)", "to_timestamp(at)", "to_date(at)", "to_date(day)",
]  # fmt: skip

_CHANGES = ["2024-03-31", "2024-10-27", "2024-03-10", "2024-11-03", "2024-04-07", "2024-10-06",
            "2018-11-04", "2019-02-16", "2011-12-29", "2011-12-31", "1941-10-01"]  # fmt: skip
WALL = _table(
    "at timestamp",
    [(dt.datetime.fromisoformat(day).replace(tzinfo=UTC) + dt.timedelta(minutes=m),)
     for day in _CHANGES for m in range(0, 1500, 15)],
)  # fmt: skip
ON_WALL = [f"{f}_utc_timestamp(at, '{z}')" for f, z in product(("from", "to"), _ZONES)]

ARRAYS = _table(
    "xs array<bigint>, ys array<bigint>, ds array<double>, ss array<string>, n int, k string, "
    "m map<string, int>, ps array<struct<a int, b string>>, v double, bs array<boolean>",
    [
        (None, [1], None, None, None, None, None, None, None, None),
        ([], None, [], [], 0, "", [], [], NAN, []),
        ([1], [], [0.0], ["a"], 1, "a", [("a", 1)], [{"a": 1, "b": "x"}], 0.0, [True]),
        ([3, 1, 3, 2], [3, None, 7], [-0.0, 0.0, 1.5], ["b", "a", None, "b"], -1, "b",
         [("b", None), ("é", 2)], [{"a": None, "b": "é"}, None], -0.0, [False, None]),
        ([None], [None, None], [NAN, NAN, None], [None, None], 2, None, [("", 0)],
         [None, {"a": 2, "b": None}], INF, [None]),
        ([5, None, 5, -5], [5], [-0.0], ["", "né", "", "日本"], 3, "né", [("z", 9)], [], 1.5,
         [True, None]),
        (list(range(40)), [2**62, -(2**62)], [INF, -INF, 1e-300], ["x" * 20] * 3, 7, "zz",
         [("k", 3)], [{"a": 7, "b": "q"}] * 2, -INF, [True, False]),
    ],
)  # fmt: skip
ON_ARRAYS = [
    "array_distinct(xs)", "array_distinct(ds)", "array_distinct(ss)", "array_distinct(bs)",
    "array_union(xs, ys)", "array_union(ds, array(0.0D, cast('NaN' as double)))",
    "array_union(ss, array('a', null))", "array_remove(xs, 5)", "array_remove(xs, n)",
    "array_remove(ss, k)", "array_remove(ds, v)", "array_remove(ds, 0.0D)",
    "array_remove(xs, null)",
    "size(m)", "size(xs)", "size(map_keys(m))", "cardinality(m)",
    "transform(xs, x -> x + 1)", "transform(xs, (x, i) -> x * i)", "transform(xs, (x, i) -> i)",
    "transform(ss, x -> concat(x, '-', k))", "transform(xs, x -> x is null)",
    "transform(ps, p -> p.a)", "transform(ps, p -> named_struct('z', p.b))", 
    "transform(ds, x -> -x)",
    "transform(xs, x -> transform(ys, y -> x + y % 10))", "transform(xs, x -> coalesce(x, n))",
    "transform(xs, xs -> xs + 1)", "transform(xs, n -> n)", "transform(bs, b -> not b)",
    "transform(xs, x -> case when x > 1 then 'many' else 'few' end)",
    "filter(xs, x -> x > 1)", "filter(xs, (x, i) -> i % 2 = 0)", "filter(xs, x -> x is null)",
    "filter(ss, x -> x like '%é%')", "filter(ds, x -> x > 0)", "filter(ps, p -> p.a = 2)",
    "filter(bs, b -> b)", "filter(filter(xs, x -> x > 1), x -> x < 3)",
    "exists(xs, x -> x > 4)", "exists(xs, x -> x is null)", "exists(ds, isnan -> isnan > 5)",
    "exists(bs, b -> b)", "forall(xs, x -> x > 0)", "forall(bs, b -> b)", "forall(ss, x -> x = k)",
    "aggregate(xs, 0L, (acc, x) -> acc + x)", "aggregate(xs, 0L, (acc, x) -> acc + coalesce(x, 0))",
    "aggregate(xs, 0L, (acc, x) -> acc + coalesce(x, 0), acc -> acc * 2.5D)",
    "aggregate(ss, '', (acc, x) -> concat(acc, coalesce(x, '?')))",
    "aggregate(ds, 0.0D, (acc, x) -> acc + x)", "reduce(xs, 0L, (a, x) -> greatest(a, x))",
    "aggregate(xs, cast(null as bigint), (a, x) -> coalesce(a, x))",
    "aggregate(xs, cast(n as bigint), (a, x) -> a + coalesce(x, 0), a -> a is null)",
    "zip_with(xs, ys, (x, y) -> coalesce(x, 0) + coalesce(y % 10, 0))",
    "zip_with(xs, ss, (x, y) -> y)", "zip_with(ss, ds, (a, b) -> a is null or b is null)",
    "size(filter(xs, x -> x > 1))", "array_max(transform(xs, x -> x * 2))",
    "exists(array('1', k), v -> cast(v as int) = 1)",
    "get(xs, 2147483647)", "get(xs, n)", "exists(array('1', 'x'), v -> cast(v as int) = 1)",
    "forall(array('1', '0', k), v -> cast(v as int) = 1)",
    "exists(array(null, '1', k), v -> cast(v as int) = 1)",
    "forall(array(null, '0', 'x'), v -> cast(v as int) = 1)",
    "exists(xs, x -> exists(array('1', k), v -> cast(v as int) = 1))",
    "exists(xs, x -> exists(ys, y -> x = y))", "transform(map_keys(m), x -> upper(x))",
]  # fmt: skip

FAMILIES: dict[str, tuple[pa.Table, list[str]]] = {
    "bits": (INTEGERS, ON_BITS),
    "rounding": (INTEGERS, ON_ROUNDING),
    "doubles": (DOUBLES, ON_DOUBLES),
    "texts": (TEXTS, ON_TEXTS),
    "dates in text": (DATED, ON_DATED),
    "times": (TIMES, ON_TIMES),
    "wall clocks": (WALL, ON_WALL),
    "arrays": (ARRAYS, ON_ARRAYS),
    **GOLDEN,
}

# (family, text): the rows on which it fails are those on which Spark does
FAILING: dict[str, tuple[pa.Table, list[str]]] = {
    "rounding": (INTEGERS, ["round(a, -1)", "round(b, -1)", "round(c, -1)", "round(d, -3)"]),
    "doubles": (DOUBLES, ["ceil(x * 1e20D, 2)", "floor(x * 1e20D, -1)"]),
    "dates in text": (
        _table("s string", [(s,) for s in [*_DATES[:3], *_WRONG]]),
        ["to_timestamp(s, 'dd/MM/yyyy HH:mm')", "to_date(s, 'dd/MM/yyyy HH:mm')",
         "unix_timestamp(s, 'dd/MM/yyyy HH:mm')", "unix_timestamp(s)", "to_date(s)"],
    ),
    "arrays": (ARRAYS, ["transform(xs, x -> x * 9223372036854775807)",
                        "aggregate(ys, 4611686018427387904L, (a, x) -> a + x)",
                        "exists(array('0', k, '1'), v -> cast(v as int) = 1)",
                        "forall(array('1', k, '0'), v -> cast(v as int) = 1)",
                        "exists(array(k), v -> cast(v as int) = 1)"]),
}  # fmt: skip

REFUSED = [  # (text, what is said)
    *((text, "cannot be compared") for text in (
        "greatest(xs, xs)", "least(named_struct('n', n), named_struct('n', n))",
        "array_min(array(xs))", "array_max(array(xs))", "array_sort(array(xs))")),
    ("sha2(n, 512)", "text or binary"), ("sha2(s, 4294967552)", "takes int, not bigint"),
    ("left(s, 2147483648)", "takes int, not bigint"),
    ("s like 'a/b' escape '/'", "escapes something other"),
    ("lpad(s, 4294967297, 'x')", "takes int, not bigint"),
    ("date_add(day, -2147483649)", "takes int, not bigint"),
    ("s like 'a/' escape '/'", "escapes something other"),
    ("s like 'a' escape 'ab'", "one character"),
    ("s like any ('a') escape '/'", "ESCAPE"), ("s like any ()", ""), ("x & 1", "has no bits"),
    ("d << d", "int"), ("round(d, n)", "literal"), ("ceil(d, 40)", "literal"),
    ("to_date(s, 'dd/MMM/yyyy')", "'MMM'"), ("to_date(s, 'yy-MM-dd')", "'yy'"),
    ("to_timestamp(s, 'HH:mm')", "yyyy"), ("to_timestamp(s, 'yyyy HH')", "dd"),
    ("to_timestamp(s, 'yyyyMMddHHmmssSSS')", "'SSS'"), ("to_timestamp(s, n)", "literal"),
    ("to_timestamp(d)", "takes text"), ("to_date(at, 'yyyy')", "only text"),
    ("from_unixtime(d, 'E')", "'E'"), ("trunc(day, 'hour')", "not a unit"),
    ("to_utc_timestamp(at, 'CET')", "not a time zone"), ("extract(epoch from at)", "not a part"),
    ("extract(year from s)", "a date or a timestamp"), ("at - at", "intervals"),
    ("transform(xs, x -> null)", "always null"), ("filter(xs, x -> x)", "not a condition"),
    ("transform(xs, 1)", "lambda is expected"), ("transform(xs, (a, b, c) -> a)", "3 variables"),
    ("aggregate(xs, 0, (a, x) -> a + x)", "starts with int"), ("x -> x", ""),
    ("transform(xs, X -> x + 1)", "case"), ("transform(s, x -> x)", "an array"),
    ("array_distinct(array(xs))", "plain values"), ("size(s)", "an array or a map"),
    ("trim(s from)", ""), ("pmod(p, 2)", "integers or doubles"), ("1e400", "beyond every double"),
    ("-1e400D", "beyond every double"), ("-3.4028235E39f", "beyond every float"),
    ("get(null, 0)", "not null"), ("array_append(null, 1)", "not null"), ("null[0]", "not null"),
    ("mod(null, null)", "not null"), ("pmod(null, null)", "not null"),
    ("date_format(day, '')", "the format is empty"), ("from_unixtime(d, '')", "empty"),
]  # fmt: skip
