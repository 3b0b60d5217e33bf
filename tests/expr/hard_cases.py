"""Hard values by type, and for each the expressions on which two engines must agree."""

from __future__ import annotations

import datetime as dt
import decimal
from itertools import product
from typing import Any

import pyarrow as pa

from headrace.schema import schema_of

UTC = dt.UTC
NAN, INF = float("nan"), float("inf")


def _table(ddl: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    schema = schema_of(ddl)
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _decimal(text: str) -> decimal.Decimal:
    return decimal.Decimal(text)


INTEGERS = _table(
    "a tinyint, b smallint, c int, d bigint, e bigint",
    [
        (None, None, None, None, None),
        (0, 0, 0, 0, 0),
        (1, -1, 7, -7, 3),
        (-1, 1, -7, 7, -3),
        (127, 32767, 2**31 - 1, 2**62, -1),
        (-127, -32767, -(2**31) + 1, -(2**62), 1),
        (5, None, 5, None, 0),
        (None, 3, None, 2**53 + 1, 2),
        (-128, -32768, -(2**31), -(2**63), -1),
        (100, 100, 100, 2**63 - 1, 5),
    ],
)
ON_INTEGERS = [
    "a", "d", "c + 0", "c - b", "b * a", "d / e", "c / 0", "d % e", "d % 3", "d % -1", "c % 0",
    "a % 5", "c div 7", "c div 0", "(c div 3) * 3 + c % 3", "mod(d, e)", "floor_mod(d, e)",
    "floor_mod(c, 4)", "floor_mod(c, -4)", "floor_div(c, 4)", "floor_div(c, -4)", "floor_div(c, e)",
    "a = b", "a <> b", "a < b", "a <= c", "a > d", "a >= e", "a <=> b", "not (a = b)",
    "a is null", "a is not null", "a = 5 or b = 3", "a = 5 and b = 3", "c between -7 and 7",
    "c not between b and d", "a in (1, 127, null)", "a in (1, 127)", "a not in (1, 127)",
    "d in (5000000000, 7)", "a = 300", "d = 9223372036854775807", "d = -9223372036854775808",
    "case when a > 0 then a when a < 0 then d end", "if(a > 0, 'up', 'down')",
    "case a when 1 then 'one' when -1 then 'minus' else 'else' end",
    "coalesce(a, b, 9)", "coalesce(d, 1.5)", "nullif(a, 1)", "nullif(c, d)", "nvl2(a, b, c)",
    "isnull(a)", "isnotnull(a)", "equal_null(a, b)", "greatest(a, b)", "greatest(a, d, 2.5)",
    "least(a, b, c)", "sign(c)", "abs(c + 1)", "abs(b + 1)", "ceil(c)", "floor(d)", "round(c)",
    "hex(d)", "bin(c)", "bit_count(d)", "sqrt(c)", "pow(c, 2)",
    "cast(a as smallint)", "cast(d as double)", "cast(c as float)", "cast(a as string)",
    "cast(d as string)", "cast(c as boolean)", "cast(c as decimal(12,2))",
    "try_cast(d as int)", "try_cast(c as tinyint)", "try_cast(d as decimal(5,1))",
    "a + cast(1 as smallint)", "cast(a as int) * cast(b as int)", "-cast(d as double)",
    "date_from_unix_date(b)", "timestamp_seconds(c)", "timestamp_millis(cast(c as bigint) * 1000)",
    "timestamp_micros(d div 4096)", "make_date(2000 + a, 3, 4)", "true",
    "cast(null as int)", "a = null", "null is null",
]  # fmt: skip

_DOUBLES = [
    None, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 1.005, 2.675, 1234.5678, -1e-7, 1e-300,
    12345678.9, 9007199254740993.0, 1e15, -1e15 - 1, NAN, 0.1, 1e6, 4.35, 2**31 - 0.5,
]  # fmt: skip
DOUBLES = _table(
    "x double, y double, f float, p decimal(10,2), q decimal(20,5)",
    [
        (x, _DOUBLES[(i * 7 + 3) % len(_DOUBLES)], x if x is None or abs(x) < 1e15 else NAN,
         None if i % 6 == 0 else _decimal("12345678.95") * (-1) ** i,
         None if i % 5 == 0 else _decimal("123456789012.34567") / (i + 1) // _decimal("0.00001")
         * _decimal("0.00001"))
        for i, x in enumerate(_DOUBLES)
    ],
)  # fmt: skip
_WHOLE = "if(is_nan(x) or abs(x) > 1e16, 0.5, x)"
ON_DOUBLES = [
    "x", "f", "f + 0", "f * 2", "x + y", "x - y", "x * y", "x / y", "y / 0", "x % y", "x % 3", "-x",
    "x % 0", "x > y", "x >= y", "x = y", "x <=> y", "x < 2", "x = f", "x between -1 and 2",
    "x in (0.5, 1, 2.5)", "floor_mod(x, 3)", "floor_mod(x, -3)", "floor_mod(x, y)", "mod(x, y)",
    "floor_div(if(abs(x) > 1e15, 1.0, x), 3)", f"ceil({_WHOLE})", f"floor({_WHOLE})",
    "round(x)", "round(x, 2)", "round(x, 1)", "round(x, -2)", "round(x, 0)", "abs(x)", "+x",
    "sign(x)", "sqrt(x)", "exp(x)", "ln(x)", "log10(x)", "log2(x)", "pow(x, 2)", "pow(x, 0.5)",
    "pow(x, y)", "pow(1, y)", "sin(x)", "cos(x)", "tan(x)", "asin(x)", "acos(x)",
    "atan(x)", "atan2(x, y)",
    "degrees(x)", "radians(x)", "is_nan(x)", "nanvl(x, y)", "greatest(x, y)", "least(x, y)",
    "coalesce(x, 0)", "nullif(x, y)", "case when x > 1 then x else 0 end",
    f"cast({_WHOLE} as bigint)", "try_cast(x as bigint)", "try_cast(x as int)",
    "try_cast(x as tinyint)", "cast(x as float)", "try_cast(x as decimal(12,2))",
    "try_cast(x as decimal(38,5))", "cast(x as float) + 1",
    "p", "p + 1", "p + q", "p - q", "p * 3", "p * p", "p / 3", "p / 0", "p + x", "p * 2.5", "-p",
    "p = q", "p > 100", "p > 100.5", "p < q", "abs(p)", "sign(p)", "round(p)", "round(p, 1)",
    "ceil(p)", "floor(p)", "cast(p as int)", "cast(p as double)", "cast(q as double)",
    "cast(p as string)", "cast(q as decimal(20,1))", "try_cast(p as decimal(5,2))",
    "try_cast(q as int)", "coalesce(p, 1)", "greatest(p, q)", "1.5BD + p", "sqrt(p)",
]  # fmt: skip

_TEXTS = [
    None, "", " ", "a", "hello", "Hello World", "  padded  ", "né", "straße", "ΟΔΟΣ", "İstanbul",
    "日本語", "😀😃", "e\u0301x", "a,b,,c", ",", "a%b_c", "back\\slash", "it's", '"quoted"',
    "tab\there", "line\nbreak", "cr\rlf\r\n", "\u2028sep", "42", "-17", "+5", " 7 ", "1.5", "1e3",
    ".5", "5.", "NaN", "Infinity", "-Infinity", "true", "False", "yes", "0x1F", "1_000", "12L",
    "9223372036854775808", "2024-02-29", "2023-02-29", "2024-2-9", "2024-02-29 12:30",
    "2024-02-29T12:30:15.123456+05:30", "1969-12-31 23:59:59.5Z", "0001-01-01", "abc123def456",
    "x" * 40, "ﬁﬂŉ ǆ", "$1 \\1", "[a](b){c}",
]  # fmt: skip
TEXTS = _table(
    "s string, t string, n int, z binary",
    [
        (s, _TEXTS[(i * 5 + 2) % len(_TEXTS)], None if i % 9 == 0 else i % 8 - 3,
         None if s is None else s.encode())
        for i, s in enumerate(_TEXTS)
    ],
)  # fmt: skip
ON_TEXTS = [
    "s", "upper(s)", "lower(s)", "length(s)", "octet_length(s)", "octet_length(z)", "trim(s)",
    "ltrim(s)", "rtrim(s)", "trim('ax ', s)", "ltrim('ah', s)", "rtrim('cx', s)", "substring(s, 2)",
    "substring(s, n)", "substring(s, n, 3)", "substring(s, 2, n)", "substring(s, 0, 2)",
    "substring(s, -2)", "substr(s, 1, 1)", "left(s, n)", "right(s, n)", "left(s, 2)", "right(s, 2)",
    "replace(s, 'a', 'é')", "replace(s, '', 'x')", "replace(s, t, '-')", "replace(s, 'l', '')",
    "translate(s, 'aé', 'é')", "translate(s, 'abc', 'xyz')", "concat(s, t)", "s || '-' || t",
    "s + t", "concat(s)", "concat_ws('-', s, t, 'x')", "starts_with(s, 'a')", "starts_with(s, t)",
    "startswith(s, '')", "ends_with(s, 'c')", "ends_with(s, '')", "contains(s, 'a')",
    "contains(s, t)", "instr(s, 'l')", "instr(s, t)", "instr(s, '')", "lpad(s, 6, 'xy')",
    "rpad(s, 6, 'é')", "lpad(s, n, 'x')", "rpad(s, 3, '')", "lpad(s, 3, t)", "repeat(s, n)",
    "reverse(s)", "ascii(s)", "split(s, ',')", "split(s, 'l')", "split(s, '.')", "split(s, ' ')",
    "split_part(s, ',', 2)", "split_part(s, ',', -1)", "split_part(s, ',', 9)",
    "split_part(s, 'l', nullif(n, 0))", "split(s, '\\\\.')", "split(s, '[,l]')",
    "like(s, '%a%')", "s like 'h%o'",
    "s like '_'", "s like 'a\\\\%b\\\\_c'", "s like '%\\\\\\\\%'", "s like ''", "s not like '%e%'",
    "s ilike '%WORLD'", "s ilike 'ODOS'", "s ilike '%İ%'", "s ilike 'οδοσ'",
    "s rlike 'l+'", "s rlike '^[a-z]+$'", "s rlike '.'", "s rlike '\\\\s'", "s rlike '\\\\d{2,}'",
    "s rlike '^a.b'", "s rlike 'a|é'", "s rlike '(a)(b)?'", "s rlike '[^a-z]'", "s rlike '^$'",
    "s rlike '\\\\w\\\\W'", "s rlike 'k$'", "s rlike '\\\\$1'", "s rlike '[\\\\]\\\\[]'",
    "regexp_replace(s, '[aeiou]', '#')", "regexp_replace(s, '([a-z])([0-9])', '$2$1')",
    "regexp_replace(s, '^.', '>')", "regexp_replace(s, 'x+', '-')",
    "regexp_replace(s, '[^a-z]', '')",
    "regexp_replace(s, '\\\\s+', '')",
    "regexp_count(s, 'l')", "regexp_count(s, '[^a-z]')", "regexp_count(s, 'll|lo')",
    "regexp_count(s, '^.')", "regexp_count(s, '.$')", "regexp_count(s, '(x)x')",
    "regexp_count(s, '([a-z]+)([0-9]+)')", "regexp_count(s, '\\\\s')",
    "regexp_extract(s, '([a-z]+)([0-9]+)', 2)", "regexp_extract(s, '([a-z]+)([0-9]+)', 0)",
    "regexp_extract(s, '(b)|(a)', 1)", "regexp_extract(s, '.', 0)", "md5(s)", "sha1(s)",
    "sha256(s)", "base64(z)", "s = t", "s < t", "s <=> t", "s >= 'é'", "s in ('a', 'né')",
    "s between 'a' and 'z'", "coalesce(s, t)", "nullif(s, 'a')", "greatest(s, t)", "least(s, t)",
    "case when s > 'm' then s else t end", "length(upper(s))", "z = cast(s as binary)",
    "cast(z as string)", "cast(s as binary)", "z", "unhex('c3a9') = z", "'it''s' = s",
    "'tab\\there' = s", "'back\\\\slash' = s", "s = '\"quoted\"'",
    "try_cast(s as int)", "try_cast(s as bigint)", "try_cast(s as tinyint)",
    "try_cast(s as double)", "try_cast(s as decimal(10,2))", "try_cast(s as boolean)",
    "try_cast(s as date)", "try_cast(s as timestamp)", "try_cast(z as string)",
    "cast(if(s rlike '^[0-9]+$' and length(s) < 5, s, '0') as int)",
    "named_struct('a', s, 'b', n).a",
    "array(s, t, 'x')", "named_struct('k', s)",
]  # fmt: skip

_MOMENTS = [
    dt.datetime(2024, 2, 29, 12, 30, 15, 123456, UTC), dt.datetime(2023, 2, 28, 0, 0, 0, 0, UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(1970, 1, 1, tzinfo=UTC),
    dt.datetime(1900, 2, 28, 23, 59, 59, 1, UTC), dt.datetime(2000, 2, 29, tzinfo=UTC),
    dt.datetime(2024, 12, 31, 23, 59, 59, 999999, UTC), dt.datetime(2021, 1, 3, 4, 5, 6, 7, UTC),
    dt.datetime(1600, 1, 1, 0, 0, 1, 0, UTC), dt.datetime(2024, 3, 31, 1, 0, 0, 0, UTC),
    dt.datetime(2024, 10, 27, 0, 30, 0, 0, UTC), dt.datetime(2024, 10, 27, 1, 30, 0, 0, UTC),
    dt.datetime(1941, 10, 1, 12, 0, 0, 0, UTC), dt.datetime(2038, 1, 19, 3, 14, 8, 0, UTC),
    dt.datetime(9990, 12, 30, 23, 0, 0, 0, UTC), dt.datetime(1883, 11, 18, 17, 0, 0, 0, UTC),
]  # fmt: skip
TIMES = _table(
    "at timestamp, til timestamp, day date, n int, since date",
    [
        (None, None, None, None, None),
        *(
            (m, _MOMENTS[(i * 3 + 1) % len(_MOMENTS)], m.date(), i * 5 - 20,
             _MOMENTS[(i * 5 + 2) % len(_MOMENTS)].date())
            for i, m in enumerate(_MOMENTS)
        ),
    ],
)  # fmt: skip
_PARTS = ["year", "quarter", "month", "dayofmonth", "day", "dayofyear", "dayofweek", "weekday",
          "weekofyear"]  # fmt: skip
_UNITS = ["millisecond", "second", "minute", "hour", "day", "week", "month", "quarter", "year"]
_ZONES = ["Europe/Rome", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "UTC",
          "Asia/Kathmandu", "America/Sao_Paulo"]  # fmt: skip
ON_TIMES = [
    "at", "day", *(f"{p}({c})" for p, c in product(_PARTS, ("at", "day"))),
    "hour(at)", "minute(at)", "second(at)", *(f"date_trunc('{u}', at)" for u in _UNITS),
    "date_trunc('month', day)", *(f"from_utc_timestamp(at, '{z}')" for z in _ZONES),
    "hour(from_utc_timestamp(at, 'Asia/Kolkata'))", "date_add(day, n)", "date_sub(day, n)",
    "date_diff(day, since)", "datediff(since, day)", "add_months(since, n)", "add_months(since, 1)",
    "add_months(day, -12)", "last_day(day)", "to_date(at)", "unix_date(day)", "unix_micros(at)",
    "unix_millis(at)", "unix_seconds(at)", "timestamp_millis(unix_millis(at))",
    "timestamp_seconds(unix_seconds(til))", "timestamp_micros(unix_micros(at))",
    *(f"timestamp_diff('{u}', at, til)" for u in ("microsecond", "second", "hour", "day", "week")),
    "date_format(at, 'yyyy-MM-dd HH:mm:ss.SSSSSS')", "date_format(at, 'dd/MM/yyyy')",
    "date_format(at, 'HH:mm:ss.SSS')", "date_format(at, 'DDD yyyy')", "make_date(n + 2000, 2, 28)",
    "make_timestamp(n + 2000, 2, 28, hour(at), 59, 59.5)",
    "make_timestamp(2000L, 2L, 28L, n % 24, 59, 8.1234565)",
    "make_timestamp(1, 2, 3, 4, 5, 1.0000015)",
    *(f"at {s} interval {n} {u}" for s, (n, u) in product("+-", [
        (1, "day"), (25, "hours"), (90, "minutes"), (1500, "milliseconds"), (1, "month"),
        (13, "months"), (1, "year"), (2, "weeks"), (7, "seconds"), (3, "microseconds")])
      if not (s == "+" and u in ("year", "months", "month", "weeks", "day", "hours"))),
    "til + interval 1 hour - interval 61 minutes", "since + interval 1 month", "at = til",
    "at < til", "at <=> til",
    "at >= timestamp '2000-02-29 00:00:00'", "at > '2024-01-01'", "day > '2000-01-01'", "at > day",
    "day = date '2024-02-29'", "day = since", "day between '1970-01-01' and '2024-02-29'",
    "at between til and '2030-01-01T00:00:00+02:00'", "day in ('2024-02-29', '1970-01-01')",
    "greatest(at, til)", "least(day, since)", "coalesce(at, til)", "nullif(day, since)",
    "cast(at as date)", "cast(day as timestamp)", "cast(day as string)", "cast(at as string)",
    "case when at > til then at else til end", "if(n > 0, day, since)",
    "year(at) * 100 + month(at)",
    "timestamp '1969-12-31 23:59:59.5' < at", "array(day, since)", "named_struct('a', at).a",
]  # fmt: skip

_JSON = [
    None, "", "{}", "[]", "null", "5", '"x"', '{"a": 1}', '{"a": "x", "b": {"c": [1, 2.5, "é"]}}',
    '{"a": null}', '{"a": true, "b": {"c": []}}', '{"a": 1.5e3}', '{"a": 12345678.5}', "{bad",
    "[1, 2",
    '{"a": "line\\nbreak \\u00e9 \\" \\\\"}', '{"a": 9223372036854775807}', '{"a": -0}',
    '{"a": 1e400}',
    '{"a": 9223372036854775808}', '{"a": 0.1}', '[1, [2, 3], {"a": 4}]', '{"b": {"c": [{"d": 7}]}}',
    '{"a": "1"}', '{"a": [1]}', ' {"a" : 2 } ', '{"a": 1} x', '{"a": false, "é": 1}', "[null, 1]",
]  # fmt: skip
NESTED = _table(
    "xs array<bigint>, ys array<bigint>, ss array<string>, ds array<double>, m map<string, int>, "
    "st struct<a int, b string, in struct<c double>>, n int, k string, j string",
    [
        (
            [None, [], [1], [3, 1, 2], [None], [5, None, 5], [-1, 2**62], list(range(10))][i % 8],
            [[1], None, [], [None, 7], [2, 2]][i % 5],
            [None, [], ["a"], ["b", "a", None], ["", "né", "b"]][i % 5],
            [None, [], [1.5, NAN, -INF], [0.0, None], [NAN]][i % 5],
            [None, [], [("a", 1)], [("b", None), ("a", 2)], [("", 0), ("é", 9)]][i % 5],
            [None, {"a": None, "b": "x", "in": None}, {"a": 1, "b": None, "in": {"c": 2.5}}][i % 3],
            None if i == 0 else i % 9 - 4,
            [None, "a", "b", "zz", ""][i % 5],
            j,
        )
        for i, j in enumerate(_JSON)
    ],
)
ON_NESTED = [
    "xs", "st", "m", "size(xs)", "size(ss)", "get(xs, 0)", "get(xs, n)", "xs[0]", "xs[1]", "xs[n]",
    "ss[2]", "element_at(xs, 1)", "element_at(xs, -1)", "element_at(xs, n)", "element_at(m, 'a')",
    "element_at(m, k)", "m['a']", "m.a", "array_contains(xs, 5)", "array_contains(ss, 'a')",
    "array_contains(ss, k)", "array_contains(xs, n)", "array_position(xs, 5)",
    "array_position(ss, k)", "array_min(xs)", "array_max(xs)", "array_min(ds)", "array_max(ds)",
    "array_max(ss)", "array_sort(xs)", "array_sort(ss)", "array_sort(ds)", "array_reverse(xs)",
    "array_append(xs, 9)", "array_append(xs, n)", "array_append(ss, k)", "array_concat(xs, ys)",
    "array_concat(ss, array('z'))", "array_concat(xs)", "array_join(ss, '-')", "slice(xs, 1, 2)",
    "slice(xs, 2, 5)", "slice(ss, nullif(n, 0), 1)", "slice(xs, 1, abs(n))", "slice(xs, -2, 2)",
    "map_keys(m)", "map_values(m)",
    "map_size(m)", "st.a", "st.b", "st.in.c", "st['a']", "st.a + 1", "st.in", "array(1, n, 3)",
    "array(st.a, n)[1]", "named_struct('x', n, 'y', xs)", "named_struct('x', n).x",
    "coalesce(xs, ys)", "case when n > 0 then xs else ys end", "xs is null", "st is null",
    "if(n > 0, st.b, k)", "array_contains(map_keys(m), 'a')", "array_max(map_values(m))",
    *(f"json_{kind}(j, '{path}')" for kind, path in product(
        ("text", "long", "double", "bool"),
        ("$.a", "$", "$.b.c[0]", "$.b.c[2]", "$[0]", "$[1][0]", "$.b.c[0].d", "$[2].a"))),
    "json_array_length(j)", "json_object_keys(j)", "size(json_object_keys(j))",
]  # fmt: skip

FAILING = {
    "integers": [
        "a + a", "b * a", "b + b", "c + c", "c - d * 4", "c * c", "d + d", "d * d", "-a",
        "-b", "-c", "-d", "abs(a)", "abs(b)", "abs(c)", "abs(d)", "d div e", "cast(d as int)",
        "cast(c as smallint)", "cast(b as tinyint)", "cast(d as decimal(10,0))",
        "make_date(2023, 2, 29)", "make_date(c, 1, 32)", "make_timestamp(2024, 1, 1, a, b, c)",
        "make_timestamp(2024, 1, 1, 0, 0, a + 0.5)", "timestamp_seconds(d)", "floor_div(d, e)",
    ],
    "doubles": [
        "ceil(x)", "floor(y)", "cast(x as bigint)", "cast(x as int)", "cast(y as tinyint)",
        "ceil(x * 1e300)", "cast(x as decimal(5,2))", "cast(q as decimal(6,0))",
        "cast(9223372036854775807.0 + x as bigint)", "cast(p as smallint)",
    ],
    "texts": [
        "cast(s as int)", "cast(s as bigint)", "cast(s as double)", "cast(s as date)",
        "cast(s as timestamp)", "cast(s as boolean)", "cast(s as decimal(4,1))",
        "cast(unhex('ff') as string)", "split_part(s, 'l', n)",
    ],
    "nested": ["slice(ss, n, 1)", "slice(xs, 1, n)"],
}  # fmt: skip

FRAMES = {
    "integers": (INTEGERS, ON_INTEGERS),
    "doubles": (DOUBLES, ON_DOUBLES),
    "texts": (TEXTS, ON_TEXTS),
    "times": (TIMES, ON_TIMES),
    "nested": (NESTED, ON_NESTED),
}
