"""The lowering to Spark: the product's typed walk, with Spark's SQL in DuckDB's place.

Headrace runs expressions in DuckDB. Here the same tree, with the same types and every implicit
cast written out, becomes SQL for a Spark session in its default ANSI mode with the time zone
UTC, so that `test_agreement` can compare the values of both engines.
A function is called in Spark by its own name, unless a table here has another template.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyarrow import types as pt
from sqlglot import exp

from headrace.expr import Expr, operator_rules, patterns, text_grammar
from headrace.expr.catalog import Function, find
from headrace.expr.lambda_functions import array_argument, bind_lambda, element_of
from headrace.expr.lower import Lowering, check, lower_call
from headrace.expr.time_functions import part_name
from headrace.expr.tree import Node
from headrace.expr.types import Term, as_decimal, computed, is_int, type_text
from headrace.expr.walk import explicit_cast, kind_of
from headrace.schema import TIMESTAMP

Template = str | Callable[[Sequence[Term]], str]

_NAMES = {
    pa.bool_(): "BOOLEAN", pa.int8(): "TINYINT", pa.int16(): "SMALLINT", pa.int32(): "INT",
    pa.int64(): "BIGINT", pa.float32(): "FLOAT", pa.float64(): "DOUBLE", pa.string(): "STRING",
    pa.binary(): "BINARY", pa.date32(): "DATE", TIMESTAMP: "TIMESTAMP",
}  # fmt: skip


def to_spark_sql(expr: Expr, schema: pa.Schema) -> str:
    check(expr, schema)
    return SparkLowering(schema, quote).top(expr).sql


def type_name(t: pa.DataType) -> str:
    if t in _NAMES:
        return _NAMES[t]
    if pt.is_list(t):
        return f"ARRAY<{type_name(t.value_type)}>"
    if pt.is_map(t):
        return f"MAP<{type_name(t.key_type)}, {type_name(t.item_type)}>"
    if pt.is_struct(t):
        return f"STRUCT<{', '.join(f'{quote(f.name)} {type_name(f.type)}' for f in t)}>"
    return f"DECIMAL({t.precision},{t.scale})"


def quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def text_literal(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def cast(term: Term, to: pa.DataType) -> Term:
    if term.type == to:
        return term
    value = term.literal
    if type(value) is int and (is_int(to) or to == pa.float64()):
        sql = f"{value}.0D" if to == pa.float64() else f"CAST({value} AS {type_name(to)})"
        return Term(sql, to, value)
    return Term(f"CAST({term.sql} AS {type_name(to)})", to)


def number(spelling: str) -> Term:
    if not spelling.lstrip("-").isdigit():
        return Term(f"{float(spelling)!r}D", pa.float64(), float(spelling))
    value = int(spelling)
    return cast(Term("", pa.null(), value), pa.int32() if -(2**31) <= value < 2**31 else pa.int64())


def nonzero(b: Term) -> str:
    if b.literal is not None and b.literal != 0:
        return b.sql
    return f"NULLIF({b.sql}, {cast(Term('0', pa.int32(), 0), b.type).sql})"


class SparkLowering(Lowering):
    """The walk for Spark: other names of types and casts, and the rules of some nodes."""

    def cast(self, term: Term, to: pa.DataType) -> Term:
        return cast(term, to)

    def as_time(self, term: Term, to: pa.DataType, where: Node) -> Term:
        return self.cast_as_written(term, to, where) if isinstance(term.literal, str) else term

    def call(self, name: str, args: Sequence[Node | Term], node: Node) -> Term:
        return lower_call(self, in_spark(find(name)), args, node)

    def cast_as_written(
        self, term: Term, to: pa.DataType, where: Node, *, safe: bool = False
    ) -> Term:
        if term.type == to:
            return term
        if pt.is_null(term.type):
            return cast(term, to)
        if isinstance(term.literal, str) and to in (pa.date32(), TIMESTAMP) and not safe:
            return explicit_cast(self, term, to, where=where)
        pair, word = (kind_of(term.type), kind_of(to)), "TRY_CAST" if safe else "CAST"
        rule = read_text if pair[0] == "text" and pair[1] in text_grammar.KINDS else CASTS.get(pair)
        plain = f"{word}({term.sql} AS {type_name(to)})"
        return Term(rule(term, to, word) if rule else plain, to)


# nodes


def _literal(low: SparkLowering, node: Node) -> Term:
    if node.args["is_string"]:
        return Term(text_literal(node.this), pa.string(), node.this)
    return number(node.this)


def _negate(low: SparkLowering, node: Node) -> Term:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.args["is_string"]:
        return number("-" + inner.this)
    return operator_rules.negate(low, node)


def _column(low: SparkLowering, node: Node) -> Term:
    raw = low.raw_column(node)
    return cast(raw, computed(raw.type))


def _dot(low: SparkLowering, node: Node) -> Term:
    of, name = low.term(node.this), node.expression.name
    if pt.is_map(of.type):
        return low.call("element_at", [of, Term(text_literal(name), pa.string(), name)], node)
    return Term(f"({of.sql}).{quote(name)}", of.type.field(name).type)


def _cast(low: SparkLowering, node: Node) -> Term:
    to = low.target_type(node)
    return low.cast_as_written(low.term(node.this), to, node, safe=isinstance(node, exp.TryCast))


def _and_or(low: SparkLowering, node: Node) -> Term:
    word, made = "AND" if isinstance(node, exp.And) else "OR", ""
    for part in reversed(operator_rules.parts_of(node)):
        sql = operator_rules.truth(low, part).sql
        made = f"({sql} {word} {made})" if made else sql
    return Term(made, pa.bool_())


def _same(low: SparkLowering, node: Node) -> Term:
    a, b = low.same([node.this, node.expression], node)
    return Term(f"({a.sql} <=> {b.sql})", pa.bool_())


def _xor(low: SparkLowering, node: Node) -> Term:
    a, b = low.same([node.this, node.expression], node)
    null = Term("CAST(NULL AS INT)", pa.int32())
    a, b = (null if pt.is_null(t.type) else t for t in (a, b))
    return Term(f"({a.sql} ^ {b.sql})", a.type)


def _divide(low: SparkLowering, node: Node) -> Term:
    a, b = (operator_rules.number_argument(low.term(n), node) for n in (node.this, node.expression))
    a, b = cast(a, pa.float64()), cast(b, pa.float64())
    return Term(f"({a.sql} / {nonzero(b)})", pa.float64())


def _remainder(low: SparkLowering, node: Node) -> Term:
    terms = [low.term(n) for n in (node.this, node.expression)]
    a, b = low.unified(operator_rules.number_pair(terms, node), node)
    if not pt.is_decimal(a.type) or any(pt.is_null(t.type) for t in terms):
        return Term(truncated(a, b), a.type)
    whole = [k.precision - k.scale for k in (as_decimal(t.type) for t in terms)]
    to = pa.decimal128(max(min(whole) + a.type.scale, 1), a.type.scale)
    return Term(f"CAST({truncated(a, b)} AS {type_name(to)})", to)


def truncated(a: Term, b: Term) -> str:
    return f"({a.sql} % {nonzero(b)})"


def _quotient(low: SparkLowering, node: Node) -> Term:
    terms = [low.term(n) for n in (node.this, node.expression)]
    a, b = low.unified(operator_rules.number_pair(terms, node), node)
    a, b = cast(a, pa.int64()), cast(b, pa.int64())
    return Term(f"({a.sql} div {nonzero(b)})", pa.int64())


SparkLowering.rules = {
    **Lowering.rules,
    exp.Literal: _literal,
    exp.Neg: _negate,
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.And: _and_or,
    exp.Or: _and_or,
    exp.NullSafeEQ: _same,
    exp.BitwiseXor: _xor,
    exp.Div: _divide,
    exp.Mod: _remainder,
    exp.IntDiv: _quotient,
}


# casts that a plain CAST does not do


def _cut(term: Term, to: pa.DataType, word: str) -> str:
    """2 ** 63, which Spark would squeeze in, does not fit."""
    if to != pa.int64() or not pt.is_floating(term.type):
        return f"{word}({term.sql} AS {type_name(to)})"
    limit, beyond = "9.223372036854775807E18D", "1.0E19D"
    inner = f"CASE WHEN {term.sql} = {limit} THEN {beyond} ELSE {term.sql} END"
    return f"{word}({inner} AS BIGINT)"


def _exact(term: Term, to: pa.DataType, word: str) -> str:
    double = cast(term, pa.float64()).sql
    return double if to == pa.float64() else f"{word}({double} AS {type_name(to)})"


def read_text(term: Term, to: pa.DataType, word: str) -> str:
    match = f"({term.sql} RLIKE {text_literal(text_grammar.pattern(kind_of(to)))})"
    value = f"{word}({term.sql} AS {type_name(to)})"
    if word == "TRY_CAST":
        return f"(CASE WHEN {match} THEN {value} END)"
    failure = f"raise_error(concat({term.sql}, ' is not {type_text(to)}'))"
    fail = f"CAST({failure} AS {type_name(to)})"
    return f"(CASE WHEN {term.sql} IS NULL THEN NULL WHEN {match} THEN {value} ELSE {fail} END)"


def _encode(term: Term, to: pa.DataType, word: str) -> str:
    return f"CAST({term.sql} AS BINARY)"


def _decode(term: Term, to: pa.DataType, word: str) -> str:
    name = "try_validate_utf8" if word == "TRY_CAST" else "validate_utf8"
    return f"{name}(CAST({term.sql} AS STRING))"


CASTS: Mapping[tuple[str, str], Callable[[Term, pa.DataType, str], str]] = {
    ("double", "int"): _cut,
    ("decimal", "int"): _cut,
    ("decimal", "double"): _exact,
    ("text", "binary"): _encode,
    ("binary", "text"): _decode,
}


# functions


def in_spark(fn: Function) -> Function:
    """The function with Spark's template: by default a call of its own name."""
    if fn.lambdas is not None:
        return dataclasses.replace(fn, lambdas=LAMBDAS[fn.name])
    if fn.name in SHARED:
        return fn
    return dataclasses.replace(fn, sql=FUNCTIONS.get(fn.name) or called(fn.name))


def called(name: str) -> Template:
    return lambda args: f"{name}({', '.join(a.sql for a in args)})"


def _integral(word: str) -> Template:
    def sql(args: Sequence[Term]) -> str:
        x = args[0]
        if len(args) == 2:
            return f"{word}({x.sql}, {args[1].literal})"
        if is_int(x.type):
            return cast(x, pa.int64()).sql
        if pt.is_decimal(x.type):
            return f"CAST({word}({x.sql}) AS BIGINT)"
        odd = f"isnan({x.sql}) OR {x.sql} >= 9.223372036854775807E18D"
        nan = "CAST(CAST('NaN' AS DOUBLE) AS BIGINT)"
        return f"(CASE WHEN {odd} THEN {nan} ELSE {word}({x.sql}) END)"

    return sql


def _round(args: Sequence[Term]) -> str:
    x, digits = args[0], args[1].literal if len(args) == 2 else 0
    assert isinstance(digits, int)
    if digits < 0 and x.type != pa.float64():
        return f"round({x.sql}, {digits})"
    if is_int(x.type):
        return x.sql
    if pt.is_decimal(x.type):
        returns = find("round").returns
        assert callable(returns)
        return f"CAST({x.sql} AS {type_name(returns(args))})"
    return f"round({x.sql}, {digits})"


def _signs_differ(rest: str, divisor: Term) -> str:
    return f"{rest} <> 0 AND ({rest} < 0) <> ({divisor.sql} < 0)"


def _floor_mod(args: Sequence[Term]) -> str:
    a, b = args
    rest = truncated(a, b)
    return f"(CASE WHEN {_signs_differ(rest, b)} THEN {rest} + {b.sql} ELSE {rest} END)"


def _floor_div(args: Sequence[Term]) -> str:
    a, b = args
    if not is_int(a.type):
        return f"CAST(floor({a.sql} / {nonzero(b)}) AS DOUBLE)"
    whole = f"({a.sql} div {nonzero(b)})"
    value = f"CASE WHEN {_signs_differ(truncated(a, b), b)} THEN {whole} - 1 ELSE {whole} END"
    return f"CAST({value} AS {type_name(a.type)})"


def _shift(name: str) -> Template:
    def sql(args: Sequence[Term]) -> str:
        to = pa.int64() if args[0].type == pa.int64() else pa.int32()
        return f"{name}({cast(args[0], to).sql}, {args[1].sql})"

    return sql


def _element(args: Sequence[Term]) -> str:
    of, key = args
    found = f"try_element_at({of.sql}, {key.sql})"
    return found if pt.is_map(of.type) else f"(CASE WHEN {key.sql} <> 0 THEN {found} END)"


def _struct(args: Sequence[Term]) -> str:
    pairs = zip(args[::2], args[1::2], strict=True)
    inner = ", ".join(f"{text_literal(str(n.literal))}, {value.sql}" for n, value in pairs)
    return f"named_struct({inner})"


# Spark reads the first of several documents; as elements of one array it sees them all.
_ALONE = "json_array_length(concat('[', {0}, ']')) = 1"


def _json(to: str, variant: str) -> Template:
    def sql(args: Sequence[Term]) -> str:
        doc, path = args[0].sql, text_literal(str(args[1].literal))
        found = f"try_variant_get(try_parse_json({doc}), {path}, 'variant')"
        value = f"try_variant_get({found}, '$', '{to}')"
        test = f"schema_of_variant({found}) RLIKE '^({variant})$'"
        return f"(CASE WHEN {_ALONE.format(doc)} AND {test} THEN {value} END)"

    return sql


def _word(args: Sequence[Term], place: int) -> str:
    return text_literal(str(args[place].literal))


def _bounded(name: str, size: str, made: str) -> str:
    fail = f"CAST(raise_error('{name} makes more than {2**24} characters') AS STRING)"
    return f"(CASE WHEN {size} > {2**24} THEN {fail} ELSE {made} END)"


def _repeat(args: Sequence[Term]) -> str:
    text, times = (a.sql for a in args)
    size = f"CAST(length({text}) AS BIGINT) * {times}"
    few = f"(CASE WHEN {size} > {2**24} THEN 0 ELSE {times} END)"
    return _bounded("repeat", size, f"repeat({text}, {few})")


def _pad(name: str) -> Template:
    def sql(args: Sequence[Term]) -> str:
        text, width, by = (a.sql for a in args)
        return _bounded(name, width, f"{name}({text}, {width}, {by})")

    return sql


_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER SIGMA}"
_LOWER = f"lower(replace({{0}}, '{_SIGMA[0]}', '{_SIGMA[1]}'))"


def _like(*, fold: bool) -> Template:
    def sql(args: Sequence[Term]) -> str:
        pattern = patterns.like_pattern(*(str(a.literal) for a in args[1:]))
        text = args[0].sql
        if fold:
            pattern, text = pattern.replace(*_SIGMA).lower(), _LOWER.format(text)
        return f"({text} LIKE {text_literal(pattern)})"

    return sql


def _regex(args: Sequence[Term]) -> str:
    return text_literal(patterns.regex(str(args[1].literal)).sql)


_MICROS = {"microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
           "hour": 3_600_000_000, "day": 86_400_000_000, "week": 604_800_000_000}  # fmt: skip


def _elapsed(args: Sequence[Term]) -> str:
    per = _MICROS[str(args[0].literal).lower()]
    return f"((unix_micros({args[2].sql}) - unix_micros({args[1].sql})) div {per})"


_SECONDS = "yyyy-MM-dd HH:mm:ss"


def _moment(args: Sequence[Term], to: pa.DataType, pattern: str = "") -> str:
    x = args[0]
    if pt.is_null(x.type):
        return "CAST(NULL AS TIMESTAMP)"
    if x.type != pa.string():
        return x.sql if x.type == TIMESTAMP else f"CAST({x.sql} AS TIMESTAMP)"
    pattern = str(args[1].literal) if len(args) == 2 else pattern
    if not pattern:
        return read_text(x, to, "CAST")
    value = f"to_timestamp({x.sql}, {text_literal(pattern)})"
    test = f"({x.sql} RLIKE {text_literal(patterns.time_reader(pattern)[0])})"
    message = f"concat({x.sql}, {text_literal(f' is not {pattern}')})"
    fail = f"CAST(raise_error({message}) AS TIMESTAMP)"
    return f"(CASE WHEN {x.sql} IS NULL THEN NULL WHEN {test} THEN {value} ELSE {fail} END)"


def _from_unixtime(args: Sequence[Term]) -> str:
    n, pattern = args[0].sql, _word(args, 1) if len(args) == 2 else f"'{_SECONDS}'"
    fail = "CAST(raise_error('seconds are beyond the years 1 to 9999') AS STRING)"
    return (
        f"(CASE WHEN {n} IS NULL THEN NULL WHEN {n} BETWEEN -62135596800L AND 253402300799L "
        f"THEN from_unixtime({n}, {pattern}) ELSE {fail} END)"
    )


_UNITS = {"yyyy": "year", "yy": "year", "mon": "month", "mm": "month"}


def _trunc(args: Sequence[Term]) -> str:
    unit = str(args[1].literal).lower()
    return f"trunc(CAST({args[0].sql} AS DATE), '{_UNITS.get(unit, unit)}')"


def _date_part(args: Sequence[Term]) -> str:
    return f"date_part('{part_name(args)}', {args[1].sql})"


# What DuckDB's own template says in Spark's SQL as well.
SHARED = {"nullif", "if", "nvl2", "isnull", "isnotnull", "date_trunc", "unhex"}
FUNCTIONS: Mapping[str, Template] = {
    "make_timestamp": "make_timestamp(CAST({0} AS INT), CAST({1} AS INT), CAST({2} AS INT), "
    "CAST({3} AS INT), CAST({4} AS INT), {5})",
    "positive": "(+ {0})", "is_nan": "isnan({0})", "equal_null": "({0} <=> {1})",
    "array_reverse": "reverse({0})", "map_size": "size({0})", "array_concat": called("concat"),
    "starts_with": "startswith({0}, {1})", "ends_with": "endswith({0}, {1})",
    "date_diff": "datediff({0}, {1})", "sha256": "sha2({0}, 256)",
    "base64": "replace(base64({0}), '\\r\\n', '')", "lower": _LOWER,
    "json_array_length": f"(CASE WHEN {_ALONE} THEN json_array_length({{0}}) END)",
    "json_object_keys": f"(CASE WHEN {_ALONE} THEN json_object_keys({{0}}) END)",
    "json_text": _json("STRING", "STRING"), "json_long": _json("BIGINT", "BIGINT"),
    "json_double": _json("DOUBLE", "BIGINT|DECIMAL.*|DOUBLE"),
    "json_bool": _json("BOOLEAN", "BOOLEAN"),
    "get_json_object": lambda a: f"get_json_object({a[0].sql}, {_word(a, 1)})",
    "ceil": _integral("ceil"), "floor": _integral("floor"), "round": _round,
    "mod": lambda a: truncated(*a), "floor_mod": _floor_mod, "floor_div": _floor_div,
    "pmod": lambda a: f"pmod({a[0].sql}, {nonzero(a[1])})",
    "shiftleft": _shift("shiftleft"), "shiftright": _shift("shiftright"),
    "shiftrightunsigned": _shift("shiftrightunsigned"),
    "element_at": _element, "named_struct": _struct, "repeat": _repeat, "lpad": _pad("lpad"),
    "rpad": _pad("rpad"), "split": lambda a: f"split({a[0].sql}, {_regex(a)}, -1)",
    "split_part": lambda a: f"split_part({a[0].sql}, {_word(a, 1)}, {a[2].sql})",
    "like": _like(fold=False), "ilike": _like(fold=True),
    "rlike": lambda a: f"({a[0].sql} RLIKE {_regex(a)})",
    "regexp_replace": lambda a: f"regexp_replace({a[0].sql}, {_regex(a)}, {_word(a, 2)})",
    "regexp_count": lambda a: f"regexp_count({a[0].sql}, {_regex(a)})",
    "regexp_extract": lambda a: f"regexp_extract({a[0].sql}, {_regex(a)}, {a[2].literal})",
    "timestamp_diff": _elapsed,
    "from_utc_timestamp": lambda a: f"from_utc_timestamp({a[0].sql}, {_word(a, 1)})",
    "to_utc_timestamp": lambda a: f"to_utc_timestamp({a[0].sql}, {_word(a, 1)})",
    "date_format": lambda a: f"date_format({a[0].sql}, {_word(a, 1)})",
    "to_timestamp": lambda a: _moment(a, TIMESTAMP),
    "to_date": lambda a: f"CAST({_moment(a, pa.date32())} AS DATE)",
    "unix_timestamp": lambda a: f"unix_timestamp({_moment(a, TIMESTAMP, _SECONDS)})",
    "from_unixtime": _from_unixtime, "trunc": _trunc, "date_part": _date_part,
}  # fmt: skip


# functions that take a lambda


def _arrow(names: Sequence[str], body: Term) -> str:
    return f"({', '.join(names)}) -> {body.sql}"


def _each(word: str) -> Callable[..., Term]:
    """A function of an array and a lambda of its elements and, perhaps, their positions."""

    def lower(low: SparkLowering, args: Sequence[Node], node: Node) -> Term:
        array, most = array_argument(low, args[0], node), word in ("transform", "filter")
        variables = [element_of(array), *([Term("{}", pa.int32())] if most else [])]
        names, body = bind_lambda(low, args[1], variables, node, least=1)
        to = {"transform": pa.list_(body.type), "filter": array.type}.get(word, pa.bool_())
        return Term(f"{word}({array.sql}, {_arrow(names, body)})", to)

    return lower


def _aggregate(low: SparkLowering, args: Sequence[Node], node: Node) -> Term:
    array, start = array_argument(low, args[0], node), low.term(args[1])
    state = Term("{}", start.type)
    step = _arrow(*bind_lambda(low, args[2], [state, element_of(array)], node))
    if len(args) == 3:
        return Term(f"aggregate({array.sql}, {start.sql}, {step})", start.type)
    names, end = bind_lambda(low, args[3], [state], node)
    return Term(f"aggregate({array.sql}, {start.sql}, {step}, {_arrow(names, end)})", end.type)


def _zip_with(low: SparkLowering, args: Sequence[Node], node: Node) -> Term:
    a, b = (array_argument(low, n, node) for n in args[:2])
    names, body = bind_lambda(low, args[2], [element_of(a), element_of(b)], node)
    return Term(f"zip_with({a.sql}, {b.sql}, {_arrow(names, body)})", pa.list_(body.type))


LAMBDAS: Mapping[str, Callable[..., Any]] = {
    **{word: _each(word) for word in ("transform", "filter", "exists", "forall")},
    "aggregate": _aggregate,
    "zip_with": _zip_with,
}
