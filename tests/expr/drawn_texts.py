"""Drawn expressions, as text, over one table of hard values.

Texts grow from columns and literals: a function of the catalogue (each is drawn by its
signature, so a new one is covered at once), an operator, a predicate, CASE or a cast over what
was drawn before. A text is paired with what Spark is asked: the same text, but for the
functions that have another name there.
"""

from __future__ import annotations

import datetime as dt
import decimal
import random
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from pyarrow import types as pt

from headrace.errors import PlanError
from headrace.expr import parsed
from headrace.expr.catalog import CATALOGUE, Function, names
from headrace.expr.lower import check
from headrace.expr.types import type_text
from headrace.schema import schema_of

UTC = dt.UTC
NAN, INF = float("nan"), float("inf")
ROWS = 20

_VALUES = {
    "i int": [0, 1, -1, 7, None, 2**31 - 1, -(2**31), 100, 3],
    "n int": [1, 2, None, -1, 0, 3, -2, 5],
    "k tinyint": [1, -128, 127, None, 0, 5, -7],
    "l bigint": [0, -7, 2**63 - 1, None, -(2**63), 12, 2**53 + 1, 1_000_000],
    "x double": [0.0, -0.0, 1.5, -2.5, NAN, None, INF, -INF, 1.005, 1e-300, 1e15, 0.5, -1e6],
    "y double": [1.0, 2.675, None, -0.5, 0.0, 3.0, NAN, 1234.5678],
    "p decimal(10,2)": [*map(decimal.Decimal, ("1.00", "-2.55", "0.00", "12345678.95")), None],
    "s string": ["", "a", "Hello World", None, "né", "  x ", "a,b,,c", "日本語", "😀😃", "a%b_c",
                 "x\ny", "\u00a0nb\u00a0", "ß", "0042", "back\\slash"],
    "t string": ["a", "", "l", None, "World", ",", "né", "b", "x", "%"],
    "u string": ["42", " -7 ", "1.5", "t", "NO", "2024-02-29", "2024-2-9 1:02", "1e3", "nan", "",
                 None, "2023-02-29", "1969-12-31T23:59:59.999999Z", "inf", "+5", "x", "12:30:"],
    "b boolean": [True, False, None],
    "c boolean": [False, True, True, None, False],
    "d date": [dt.date(2024, 2, 29), None, dt.date(2023, 12, 31), dt.date(1970, 1, 1),
               dt.date(1900, 2, 28), dt.date(2024, 1, 31), dt.date(1582, 10, 10)],
    "e date": [dt.date(2000, 2, 29), dt.date(2024, 3, 31), None, dt.date(1969, 7, 20)],
    "at timestamp": [dt.datetime(2024, 2, 29, 12, 30, 15, 123456, UTC), None,
                     dt.datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
                     dt.datetime(2024, 3, 31, 1, 0, 0, 0, UTC),
                     dt.datetime(2024, 10, 27, 0, 30, 0, 0, UTC),
                     dt.datetime(1600, 1, 1, 0, 0, 1, 0, UTC)],
    "til timestamp": [dt.datetime(2024, 12, 31, 23, 59, 59, 0, UTC), None,
                      dt.datetime(1970, 1, 1, tzinfo=UTC),
                      dt.datetime(2021, 1, 3, 4, 5, 6, 7, UTC)],
    "xs array<bigint>": [[1, 2, 3], [], None, [None], [5, None, 5], [-1, 2**62]],
    "ys array<bigint>": [[2], [1, 1], None, [], [3, 2, 1, None]],
    "ss array<string>": [["a", "b"], None, [], ["né", None, ""], ["b", "a", "b"]],
    "ds array<double>": [[1.5, NAN], None, [], [0.0, -1.0, None]],
    "m map<string, int>": [[("a", 1)], None, [], [("b", None), ("a", 2)]],
    "st struct<a int, b string>": [{"a": 1, "b": "x"}, None, {"a": None, "b": "né"}],
    "z binary": [b"", b"a", None, "né".encode()],
    "js string": ['{"a": 1}', "[1, 2]", None, "{bad", '{"a": {"b": [true]}}', "5", '{"a": "x"}'],
}  # fmt: skip
SCHEMA = schema_of(", ".join(_VALUES))
TABLE = pa.Table.from_arrays(
    [
        pa.array([vs[(row * (1 + place % 3) + place) % len(vs)] for row in range(ROWS)], f.type)
        for place, (vs, f) in enumerate(zip(_VALUES.values(), SCHEMA, strict=True))
    ],
    schema=SCHEMA,
)  # fmt: skip


class Drawn(NamedTuple):
    ours: str
    spark: str

    @classmethod
    def same(cls, text: str) -> Drawn:
        return cls(text, text)

    @classmethod
    def of(cls, template: str, *parts: Drawn) -> Drawn:
        return cls(
            template.format(*(p.ours for p in parts)), template.format(*(p.spark for p in parts))
        )


# Functions that Spark has under another name, or has not: how a user of Spark would say it.
ELSEWHERE = {
    "array_concat": "concat({all})", "array_reverse": "reverse({0})", "map_size": "size({0})",
    "starts_with": "startswith({0}, {1})", "ends_with": "endswith({0}, {1})",
    "is_nan": "isnan({0})", "sha256": "sha2({0}, 256)",
    "floor_mod": "CASE WHEN try_mod({0}, {1}) <> 0 AND (try_mod({0}, {1}) < 0) <> ({1} < 0) "
    "THEN try_mod({0}, {1}) + {1} ELSE try_mod({0}, {1}) END",
}  # fmt: skip
# The current date is another one in Spark (tests/expr/test_current_date.py).
APART = {"current_date"}

_WORDS = {
    "like": ["'%a%'", "'_'", "'H%o'", "''", "'a\\\\%%'"],
    "ilike": ["'%A%'", "'_'", "'h%O'", "'NÉ'"],
    "rlike": ["'l+'", "'^[a-z]+$'", "'.'", "'a|é'", "'\\\\s'", "'\\\\d{2}'"],
    "regexp_replace": ["'[aeiou]'", "'l+'", "'.'", "'\\\\s'"],
    "regexp_count": ["'[aeiou]'", "'l+'", "'.'", "'^[a-z]'", "'(b)|(a)'"],
    "regexp_extract": ["'([a-z])([a-z])'", "'(l+)'", "'(.)(.)'"],
    "split": ["','", "'l'", "'[,l]'", "'\\\\.'", "' '"],
    "split_part": ["','", "'l'", "'.'"],
    "date_trunc": ["'hour'", "'week'", "'month'", "'QUARTER'", "'year'", "'day'"],
    "from_utc_timestamp": ["'Europe/Rome'", "'America/New_York'", "'Asia/Kolkata'", "'UTC'"],
    "date_format": ["'yyyy-MM-dd'", "'dd/MM/yyyy HH:mm:ss'", "'HH:mm:ss.SSS'", "'DDD'"],
    "to_utc_timestamp": ["'Europe/Rome'", "'America/New_York'", "'Asia/Kolkata'", "'UTC'"],
    "to_date": ["'yyyy-MM-dd'", "'dd/MM/yyyy'", "'yyyyMMdd'"],
    "to_timestamp": ["'yyyy-MM-dd HH:mm:ss'", "'yyyy-MM-dd'"],
    "unix_timestamp": ["'yyyy-MM-dd HH:mm:ss'", "'yyyy-MM-dd'"],
    "from_unixtime": ["'dd/MM/yyyy HH:mm'", "'yyyy-MM-dd'"],
    "trunc": ["'week'", "'MM'", "'quarter'", "'year'"],
    "date_part": ["'year'", "'week'", "'dow'", "'second'", "'hour'", "'doy'"],
    "unhex": ["'c3a9'", "''", "'00ff'"],
    "get_json_object": ["'$.a'", "'$[0]'", "'$'", "'$.a[*].b'", "'$[\\'b\\']'"],
    "": ["'a'", "'day'", "'UTC'", "'yyyy-MM-dd'", "'$.a'", "'month'"],
}
# What stands at a place of a function where its kind alone would hardly ever do.
_PLACES = {
    ("like", 2): ["'/'", "'!'"], ("ilike", 2): ["'/'", "'!'"],
    ("regexp_replace", 2): ["'#'", "''", "'é'"],
    ("sha2", 1): ["256", "0", "224", "384", "512", "1", "n"],
    ("round", 1): ["-2", "-1", "0", "1", "2"], ("ceil", 1): ["-2", "-1", "0", "1", "2"],
    ("floor", 1): ["-2", "-1", "0", "1", "2"],
    ("transform", 1): ["x -> x", "(x, q) -> q", "x -> coalesce(x, x)", "x -> x is null",
                       "x -> array(x)", "x -> n + 1"],
    ("filter", 1): ["x -> x is not null", "(x, q) -> q > 0", "x -> x = x", "x -> b"],
    ("exists", 1): ["x -> x is null", "x -> x <> x", "x -> b"],
    ("forall", 1): ["x -> x is not null", "x -> x = x", "x -> b"],
    ("aggregate", 2): ["(acc, x) -> acc", "(acc, x) -> coalesce(acc, acc)"],
    ("aggregate", 3): ["acc -> acc is null", "acc -> acc"],
    ("zip_with", 2): ["(x, q) -> x", "(x, q) -> q is null or x is null", "(x, q) -> q"],
}  # fmt: skip
# Calls that no signature tells how to draw: {0} is an array of longs, {1} a long.
_CALLS = {
    "transform": ["transform({0}, v -> v + {1})", "transform(ss, v -> upper(v))",
                  "transform({0}, (v, at_place) -> v * at_place)"],
    "filter": ["filter({0}, v -> v > {1})", "filter(ss, v -> v like '%a%')",
               "filter({0}, v -> v is not null)"],
    "exists": ["exists({0}, v -> v = {1})", "exists({0}, v -> v > 2)"],
    "forall": ["forall({0}, v -> v <> {1})", "forall({0}, v -> v > 0)"],
    "aggregate": ["aggregate({0}, 0L, (acc, v) -> acc + coalesce(v, 1L))",
                  "aggregate({0}, cast({1} as bigint), (acc, v) -> greatest(acc, v))",
                  "aggregate({0}, 1L, (acc, v) -> acc + 1L, acc -> acc * 2)"],
    "zip_with": ["zip_with({0}, ys, (v, w) -> v - w)",
                 "zip_with({0}, xs, (v, w) -> coalesce(v, w))"],
    "get_json_object": [
        "get_json_object('{{\"a\": [{{\"b\": 1.50}}, {{\"b\": null}}, 2]}}', '$.a[*]')",
        "get_json_object(u, '$')", "get_json_object(concat('{{\"a\":\"', s, '\"}}'), '$.a')",
        "get_json_object(concat('[', u, ', \"', t, '\"]'), '$[1]')",
    ],
    "sha2": ["sha2(s, 256)", "sha2(t, 512)", "sha2(u, 224)", "sha2(s, 0)"],
}  # fmt: skip


def _json_call(name: str, doc: str, path: str, kinds: str, to: str) -> Drawn:
    found = f"try_variant_get(try_parse_json({doc}), '{path}', 'variant')"
    typed = f"schema_of_variant({found}) rlike '^({kinds})$'"
    return Drawn(
        f"{name}({doc}, '{path}')",
        f"if({typed}, try_variant_get({found}, '$', '{to}'), cast(null as {to}))",
    )


_FLOOR = (
    "CASE WHEN ({1}) <> 0 THEN ({0}) div ({1}) "
    "- if(({0}) % ({1}) <> 0 AND (({0}) < 0) <> (({1}) < 0), 1, 0) END"
)
_DOCUMENTS = [
    "js", "concat('{{\"a\": ', u, '}}')", "concat('{{\"a\": [', u, ', \"', t, '\"]}}')",
    "concat('[', cast(l as string), ', {{\"b\": ', cast(b as string), '}}]')",
    "'{{\"a\": \"n\\\\u00e9\", \"b\": [1.5, 2e3, -0, 1e400]}}'",
]  # fmt: skip
_PATHS = ["$.a", "$.a.b", "$.a[0]", "$[0]", "$[1].b", "$.b[1]", "$.b[3]", "$"]
# Functions that Spark has not, with how its user would say it: {0} and {1} are longs, {2} and {3}
# timestamps, {4} and {5} doubles.
OWN_CALLS = {
    "floor_div": [
        Drawn("floor_div({0}, cast({1} as bigint))", _FLOOR),
        Drawn("floor_div(i, n)", f"cast({_FLOOR.format('i', 'n')} as int)"),
        Drawn("floor_div(k, k)", f"cast({_FLOOR.format('k', 'k')} as tinyint)"),
        Drawn("floor_div({4}, {5})",
              "CASE WHEN abs(({4}) / nullif({5}, 0D)) < 1e15 THEN "
              "cast(floor(({4}) / ({5})) as double) ELSE ({4}) / nullif({5}, 0D) END"),
    ],
    "timestamp_diff": [
        Drawn(f"timestamp_diff('{unit}', {{2}}, {{3}})", f"timestampdiff({unit}, {{2}}, {{3}})")
        for unit in ("microsecond", "millisecond", "second", "minute", "hour", "day", "week")
    ],
    **{
        name: [_json_call(name, doc, path, kinds, to) for doc in _DOCUMENTS for path in _PATHS]
        for name, kinds, to in (
            ("json_text", "STRING", "string"), ("json_long", "BIGINT", "bigint"),
            ("json_double", "BIGINT|DECIMAL.*|DOUBLE", "double"),
            ("json_bool", "BOOLEAN", "boolean"),
        )
    },
}  # fmt: skip
_LITERALS = [
    "0", "1", "-1", "7", "3L", "9223372036854775807", "2147483648", "1.5D", "-0.0D", "1e3", "2.5D",
    "0.5BD", "'a'", "''", "'né'", "'it''s'", "'42'", "true", "false", "date '2024-02-29'",
    "date '1970-01-01'", "timestamp '2024-02-29 23:59:59.5'", "array(1L, 2L, null)", "array('a')",
    "cast(null as int)", "cast(null as string)", "cast('NaN' as double)", "'l'", "2", "-3",
]  # fmt: skip
_CASTS = ["int", "bigint", "double", "string", "boolean", "date", "timestamp", "decimal(10,2)",
          "smallint", "tinyint", "decimal(20,5)", "binary"]  # fmt: skip
_INFIX = ["&", "|", "^", "<<", ">>", ">>>", "+", "-", "*", "/", "%", "div", "=", "<>", "<", "<=",
          ">", ">=", "<=>", "and", "or", "||",
          "is distinct from", "!=", "=="]  # fmt: skip
_TEMPLATES = [
    "{0} between {1} and {2}", "{0} not between {1} and {2}", "{0} in ({1}, {2})",
    "{0} not in ({1}, {2}, {0})", "{0} is null", "{0} is not null", "not {0}", "- {0}", "+ {0}",
    "{0} is true", "{0} is not false", "case when {0} then {1} else {2} end",
    "case when {0} then {1} end", "case {0} when {1} then {2} end", "{0} like '%a%'",
    "{0} not like '%a_'", "{0} not ilike 'H%'", "{0} not rlike 'l'", "{0} + interval 1 month",
    "{0} - interval 3 days", "{0} + interval 90 minutes", "{0} - interval 1 year",
    "interval 2 weeks + {0}", "xs[{0}]", "st.a + {0}", "m[{0}]", "coalesce({0}, {1}, {2})",
    "cast({0} as {cast})", "try_cast({0} as {cast})", "{0}::{cast}", "if({0}, {1}, {2})",
    "try_cast(u as {cast})", "cast(u as {cast})", "~ {0}", "{0} like any ('%a%', '_')",
    "{0} not like all ('%a%', '%l%')", "{0} not ilike any ('%A%', 'H%')",
    "{0} like '%!%%' escape '!'", "trim(both {1} from {0})", "trim(leading from {0})",
    "position({1} in {0})", "extract(month from {0})", "extract(second from {0})",
    "transform({0}, x -> x = {1})", "exists(xs, x -> x > {0})", "filter(ss, x -> x <> {0})",
    "cast({0} - {1} as int)",
]  # fmt: skip
_ATOM = ("{0} is null", "{0} is not null", "{0} is true")


class Draw:
    """One run: the same seed draws the same texts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.known: dict[str, list[Drawn]] = defaultdict(list)
        self.refused: dict[str, int] = defaultdict(int)
        for text in [*SCHEMA.names, *_LITERALS]:
            self._learn(Drawn.same(text))
        self.leaves = {family: list(drawn) for family, drawn in self.known.items()}

    def _learn(self, drawn: Drawn) -> bool:
        try:
            kind = check(parsed(drawn.ours), SCHEMA)
        except PlanError as error:
            self.refused[str(error.code)] += 1
            return False
        self.known[_family(kind)].append(drawn)
        return True

    def texts(self, count: int) -> Iterator[Drawn]:
        """So many texts; every function of the catalogue comes first, three times."""
        seen: set[str] = set()
        functions = [CATALOGUE[name] for name in names() if name not in APART]
        turns = iter(functions * 3)
        attempts = 0
        while len(seen) < count:
            attempts += 1
            assert attempts < 200 * count, "nothing new can be drawn"
            function = next(turns, None)
            for _ in range(40 if function else 1):
                drawn = self._call(function) if function else self._one(functions)
                if drawn.ours not in seen and _short(drawn) and self._learn(drawn):
                    seen.add(drawn.ours)
                    yield drawn
                    break

    def _one(self, functions: list[Function]) -> Drawn:
        turn = self.random.random()
        if turn < 0.45:
            return self._call(self.random.choice(functions))
        if turn < 0.7:
            sign = self.random.choice(_INFIX)
            family = self.random.choice(list(self.known))
            right = self._operand(family)
            if sign in ("/", "%", "div") and self.random.random() < 0.8:
                right = Drawn.of("nullif({0}, 0)", right)  # dividing by zero differs by design
            return Drawn.of(f"{{0}} {sign} {{1}}", self._operand(family), right)
        template = self.random.choice(_TEMPLATES).replace("{cast}", self.random.choice(_CASTS))
        one, two = (self.random.choice(list(self.known)) for _ in range(2))
        if template.startswith(("case when", "if(")):
            one, two = "bool", one
        return Drawn.of(template, self._operand(one), self._operand(two), self._operand(two))

    def _pick(self, family: str) -> Drawn:
        """A column or literal, or something short that was drawn before."""
        if family in self.leaves and self.random.random() < 0.6:
            return self.random.choice(self.leaves[family])
        drawn = self.random.choice(self.known[family])
        return drawn if len(drawn.ours) < 70 else self.random.choice(self.known[family][:40])

    def _operand(self, family: str) -> Drawn:
        drawn = self._pick(family)
        if " " not in drawn.ours or self.random.random() < 0.15:
            return drawn
        return Drawn.of("({0})", drawn)

    def _call(self, function: Function) -> Drawn:
        if function.name in OWN_CALLS:
            return self._own_call(function.name)
        if function.name in _CALLS and self.random.random() < 0.5:
            call = self.random.choice(_CALLS[function.name])
            return Drawn.of(call, self._pick("[int]"), self._pick("int"))
        rest = 0 if function.most is None else function.most - function.least
        count = function.least + self.random.randint(0, max(rest, 0 if function.most else 2))
        together = self.random.choice([f for f in self.known if not f.startswith("[")])
        args = [self._argument(function, i, together) for i in range(count)]
        every = ", ".join(f"{{{i}}}" for i in range(count))
        ours = f"{function.name}({every})".format(*(a.ours for a in args))
        said = ELSEWHERE.get(function.name, f"{function.name}({every})").replace("{all}", every)
        return Drawn(ours, said.format(*(f"{a.spark}" for a in args)))

    def _own_call(self, name: str) -> Drawn:
        call, kinds = self.random.choice(OWN_CALLS[name]), ("int", "timestamp", "double")
        args = [self._pick(kind) for kind in kinds for _ in range(2)]
        return Drawn(call.ours.format(*(a.ours for a in args)),
                     call.spark.format(*(a.spark for a in args)))  # fmt: skip

    def _argument(self, function: Function, place: int, together: str) -> Drawn:
        kind = function.kind(place)
        if function.name in ("lpad", "rpad", "repeat") and kind == "int":
            return Drawn.same("n")  # a text of 2 ** 31 characters takes all memory
        if function.name == "named_struct" and place % 2 == 0:
            return Drawn.same(f"'f{place}'")
        words = _PLACES.get((function.name, place))
        if words is None and kind == "word":
            words = _WORDS.get(function.name, _WORDS[""])
        if words is not None:
            return Drawn.same(self.random.choice(words))
        if kind == "[T]":
            lists = [f for f in self.known if f.startswith("[")]
            own = f"[{together}]"
            return self._pick(own if own in lists else self.random.choice(lists))
        families = {"T": [together], "any": list(self.known), 
                    "number": ["int", "double", "decimal"],
                    "double": ["double", "int"], "long": ["int"], "int": ["int"], "map": ["map"],
                    "timestamp": ["timestamp"] * 9 + ["date"]}.get(kind, [kind])  # fmt: skip
        known = [f for f in families if self.known.get(f)] or list(self.known)
        drawn = self._pick(self.random.choice(known))
        return Drawn.same("n") if kind == "int" and self.random.random() < 0.5 else drawn


def _short(drawn: Drawn) -> bool:
    return len(drawn.ours) < 300 and len(drawn.spark) < 3000


def _family(kind: pa.DataType) -> str:
    if pt.is_list(kind):
        return f"[{_family(kind.value_type)}]"
    if pt.is_decimal(kind):
        return "decimal"
    if pt.is_map(kind) or pt.is_struct(kind):
        return "map" if pt.is_map(kind) else "struct"
    plain = {"tinyint": "int", "smallint": "int", "bigint": "int", "float": "double",
             "string": "text", "boolean": "bool"}  # fmt: skip
    return plain.get(type_text(kind), type_text(kind))
