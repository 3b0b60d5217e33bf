"""SQL functions of text and bytes.

Invariant: a position counts characters (code points) from 1, 0 is "not there"; case follows
Unicode's full mapping (upper of "ß" is "SS"), except that a sigma at a word's end is not
special. A text where a column is expected is the column's name; elsewhere it is the text itself.
"""

from __future__ import annotations

import string
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.catalog import declare, function, listed
from headrace.expr.expression import Column, Expr, call, column_of, optional
from headrace.expr.types import DIGEST, Term, failing

# case: the dot of İ has to be written out for DuckDB

_ASCII = "strlen({0}) = length({0})"
_DOTTED = "'\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}', 'i\N{COMBINING DOT ABOVE}'"
LOWER = f"lower(CASE WHEN {_ASCII} THEN {{0}} ELSE replace({{0}}, {_DOTTED}) END)"


@cache
def _longer() -> tuple[str, str]:
    """Characters whose upper case is several, and these: DuckDB maps one to one."""
    several = [chr(c) for c in range(0x80, 0xFFFF) if len(chr(c).upper()) > 1]
    return "".join(several), "|".join(c.upper() for c in several)


def _upper(args: Sequence[Term]) -> str:
    """By DuckDB's upper, unless a character of `_longer` is in it: those are looked up."""
    x, (keys, values) = args[0].sql, _longer()
    place = f"instr('{keys}', c)"
    each = f"lambda c: CASE WHEN {place} > 0 THEN split_part('{values}', '|', {place}) ELSE c END"
    longer = f"array_to_string(list_transform(string_split({x}, ''), {each}), '')"
    plain = f"{_ASCII.format(x)} OR NOT regexp_matches({x}, '[{keys}]')"
    return f"(CASE WHEN {plain} THEN upper({x}) ELSE upper({longer}) END)"


@function("text -> text", _upper, aliases="ucase")
def upper(column: Column) -> Expr:
    """In upper case."""
    return call("upper", column_of(column))


@function("text -> text", LOWER, aliases="lcase")
def lower(column: Column) -> Expr:
    """In lower case."""
    return call("lower", column_of(column))


@cache
def _titled() -> tuple[str, str]:
    """The characters that begin a capital word otherwise than by DuckDB's upper, and how."""
    every = map(chr, range(0x80, sys.maxunicode))
    odd = [c for c in every if c.title() != c.upper() or len(c.title()) > 1]
    return "".join(odd), "|".join(c.title() for c in odd)


_CASED = r"\p{Lu}\p{Ll}\p{Lt}"
_SIGMA, _FINAL = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}"


def _initcap(args: Sequence[Term]) -> str:
    """The first character of each word as a title, the others in lower case; a sigma that ends
    a word is final, and one beside other signs than letters is refused."""
    x, (keys, values) = args[0].sql, _titled()
    ended = f"regexp_replace({x}, '([{_CASED}]){_SIGMA}( |$)', '\\1{_FINAL}\\2', 'g')"
    place = f"instr('{keys}', w[1])"
    first = (
        f"CASE WHEN w <> '' AND {place} > 0 THEN split_part('{values}', '|', {place}) "
        "ELSE upper(w[1]) END"
    )
    word = f"lambda w: ({first}) || lower(replace(w[2:], {_DOTTED}))"
    capital = f"array_to_string(list_transform(string_split({ended}, ' '), {word}), ' ')"
    odd = f"{_SIGMA}[^ {_CASED}]|[^ {_CASED}]{_SIGMA}"
    fail = failing("'initcap cannot tell whether a sigma ends a word in '", x)
    return (
        f"(CASE WHEN regexp_matches({x}, '{odd}') THEN CAST({fail} AS VARCHAR) ELSE {capital} END)"
    )


@function("text -> text", _initcap, may_fail=True)
def initcap(column: Column) -> Expr:
    """Each word with a capital first letter, the others small; blanks separate words."""
    return call("initcap", column_of(column))


# parts


@function("text -> int", "CAST(length({0}) AS INTEGER)", aliases="len char_length")
def length(column: Column) -> Expr:
    """The number of characters."""
    return call("length", column_of(column))


def _trim(name: str) -> Callable[[Sequence[Term]], str]:
    """`trim(characters, text)`, as in Spark; of a text alone only blanks."""

    def sql(args: Sequence[Term]) -> str:
        if len(args) == 1:
            return f"{name}({args[0].sql}, ' ')"
        characters, text = args
        return f"{name}({text.sql}, {characters.sql})"

    return sql


@function("text text? -> text", _trim("trim"))
def trim(column: Column, characters: str | None = None) -> Expr:
    """Without blanks, or without any of `characters`, at both ends."""
    return call("trim", *optional(characters), column_of(column))


@function("text text? -> text", _trim("ltrim"))
def ltrim(column: Column, characters: str | None = None) -> Expr:
    """Without blanks, or without any of `characters`, at the start."""
    return call("ltrim", *optional(characters), column_of(column))


@function("text text? -> text", _trim("rtrim"))
def rtrim(column: Column, characters: str | None = None) -> Expr:
    """Without blanks, or without any of `characters`, at the end."""
    return call("rtrim", *optional(characters), column_of(column))


def _not_negative(sql: str) -> str:
    return f"(CASE WHEN {sql} < 0 THEN 0 ELSE {sql} END)"


def _substring(args: Sequence[Term]) -> str:
    """Spark reads position 0 as 1 and a negative length as none."""
    text, start = args[0].sql, args[1].sql
    first = f"(CASE WHEN {start} = 0 THEN 1 ELSE {start} END)"
    if isinstance(args[1].literal, int) and args[1].literal != 0:
        first = start
    if len(args) == 2:  # without a length
        return f"substring({text}, {first})"
    return f"substring({text}, {first}, {_not_negative(args[2].sql)})"


@function("text int int? -> text", _substring, aliases="substr")
def substring(column: Column, start: Any, length: Any = None) -> Expr:
    """`length` characters from position `start`; the first is 1, the last -1."""
    return call("substring", column_of(column), start, *optional(length))


@function("text int -> text", f"left({{0}}, {_not_negative('{1}')})")
def left(column: Column, count: Any) -> Expr:
    """The first `count` characters."""
    return call("left", column_of(column), count)


@function("text int -> text", f"right({{0}}, {_not_negative('{1}')})")
def right(column: Column, count: Any) -> Expr:
    """The last `count` characters."""
    return call("right", column_of(column), count)


@function("text text text? -> text", "replace({0}, {1}, {2})", default="")
def replace(column: Column, old: Any, new: Any = "") -> Expr:
    """With every `old` replaced by `new`."""
    return call("replace", column_of(column), old, new)


@function("text text text -> text", "translate({0}, {1}, {2})")
def translate(column: Column, old: Any, new: Any) -> Expr:
    """With each character of `old` replaced by the one at its place in `new`."""
    return call("translate", column_of(column), old, new)


@function("text text* -> text", listed("({})", " || "))
def concat(*columns: Column) -> Expr:
    """One after another; null if one is null."""
    return call("concat", *map(column_of, columns))


@function("text text text* -> text", listed("concat_ws({})"))
def concat_ws(separator: str, *columns: Column) -> Expr:
    """Joined by a separator, without the nulls."""
    return call("concat_ws", separator, *map(column_of, columns))


@function("text text -> bool", "starts_with({0}, {1})", aliases="startswith")
def starts_with(column: Column, prefix: Any) -> Expr:
    """Whether it starts with `prefix`."""
    return call("starts_with", column_of(column), prefix)


@function("text text -> bool", "ends_with({0}, {1})", aliases="endswith")
def ends_with(column: Column, suffix: Any) -> Expr:
    """Whether it ends with `suffix`."""
    return call("ends_with", column_of(column), suffix)


@function("text text -> bool", "contains({0}, {1})")
def contains(column: Column, part: Any) -> Expr:
    """Whether `part` is in it."""
    return call("contains", column_of(column), part)


@function("text text -> int", "CAST(instr({0}, {1}) AS INTEGER)")
def instr(column: Column, part: Any) -> Expr:
    """The position of `part`, from 1; 0 if it is not there."""
    return call("instr", column_of(column), part)


_FOUND = "instr(substring({1}, CAST({2} AS BIGINT)), {0})"
_LOCATE = (
    "CAST(CASE WHEN {2} IS NULL THEN 0 WHEN {0} IS NULL OR {1} IS NULL THEN NULL "
    "WHEN {2} < 1 THEN 0 WHEN {0} = '' THEN 1 "
    f"WHEN {_FOUND} = 0 THEN 0 ELSE {_FOUND} + {{2}} - 1 END AS INTEGER)"
)


@function("text text int? -> int", _LOCATE, aliases="position", default=1)
def locate(part: Any, column: Column, start: Any = 1) -> Expr:
    """The position of `part` from 1, looked for from `start` on; 0 if it is not there."""
    return call("locate", part, column_of(column), start)


# padding and repetition

_LONGEST = 2**24  # characters that padding and repetition make, as a guard of the process


def _bounded(name: str, size: str, value: str) -> str:
    """`value`, unless its length in characters is beyond all measure: then the row fails."""
    message = f"'{name} makes more than {_LONGEST} characters'"
    fail = f"CAST({failing(message)} AS VARCHAR)"
    return f"(CASE WHEN {size} > {_LONGEST} THEN {fail} ELSE {value} END)"


def _few(times: str, size: str) -> str:
    """Zero beyond the limit, even where unused: engines compute constants ahead of time."""
    return f"(CASE WHEN {size} > {_LONGEST} THEN 0 ELSE {times} END)"


def _pad(name: str) -> Callable[[Sequence[Term]], str]:
    def sql(args: Sequence[Term]) -> str:
        text, width, by = (a.sql for a in args)
        cut = f"left({text}, {_not_negative(width)})"
        padded = f"{name}({text}, {_few(width, width)}, {by})"
        return f"(CASE WHEN {by} = '' THEN {cut} ELSE {_bounded(name, width, padded)} END)"

    return sql


@function("text int text? -> text", _pad("lpad"), default=" ", may_fail=True)
def lpad(column: Column, width: Any, by: Any = " ") -> Expr:
    """Padded at the start, or cut, to `width` characters."""
    return call("lpad", column_of(column), width, by)


@function("text int text? -> text", _pad("rpad"), default=" ", may_fail=True)
def rpad(column: Column, width: Any, by: Any = " ") -> Expr:
    """Padded at the end, or cut, to `width` characters."""
    return call("rpad", column_of(column), width, by)


def _repeat(args: Sequence[Term]) -> str:
    text, times = (a.sql for a in args)
    size = f"CAST(length({text}) AS BIGINT) * {times}"
    return _bounded("repeat", size, f"repeat({text}, {_few(times, size)})")


@function("text int -> text", _repeat, may_fail=True)
def repeat(column: Column, times: Any) -> Expr:
    """Repeated `times` times."""
    return call("repeat", column_of(column), times)


@function("text -> text", "array_to_string(list_reverse(string_split({0}, '')), '')")
def reverse(column: Column) -> Expr:
    """Its characters backwards."""
    return call("reverse", column_of(column))


# bytes and digests


@function("text -> int", "CAST(ascii({0}) AS INTEGER)")
def ascii(column: Column) -> Expr:
    """The code point of the first character; 0 of an empty text."""
    return call("ascii", column_of(column))


def _octets(args: Sequence[Term]) -> str:
    name = "strlen" if args[0].type == pa.string() else "octet_length"
    return f"CAST({name}({args[0].sql}) AS INTEGER)"


def _octets_type(args: Sequence[Term]) -> pa.DataType:
    if args[0].type in (pa.string(), pa.binary()):
        return pa.int32()
    raise PlanError("HR-EXPR-003", "octet_length takes text or binary", "Use cast.")


@function("any ->", _octets, returns=_octets_type)
def octet_length(column: Column) -> Expr:
    """The number of bytes of a text or a binary."""
    return call("octet_length", column_of(column))


@function("text -> text", "md5({0})")
def md5(column: Column) -> Expr:
    """The MD5 digest in hexadecimal digits."""
    return call("md5", column_of(column))


@function("text -> text", "sha1({0})", aliases="sha")
def sha1(column: Column) -> Expr:
    """The SHA-1 digest in hexadecimal digits."""
    return call("sha1", column_of(column))


@function("text -> text", "sha256({0})")
def sha256(column: Column) -> Expr:
    """The SHA-256 digest in hexadecimal digits."""
    return call("sha256", column_of(column))


def _digest(args: Sequence[Term]) -> str:
    octets = f"encode({args[0].sql})" if args[0].type == pa.string() else args[0].sql
    return (
        f"(CASE WHEN {args[1].sql} IN (0, 256) THEN sha256({octets}) "
        f"WHEN {args[1].sql} IN (224, 384, 512) THEN {DIGEST}({octets}, {args[1].sql}) "
        f"ELSE sha256(nullif({octets}, {octets})) END)"  # null, once it is computed
    )


def _digest_type(args: Sequence[Term]) -> pa.DataType:
    if args[0].type in (pa.string(), pa.binary()):
        return pa.string()
    raise PlanError("HR-EXPR-003", "sha2 takes text or binary", "Use cast.")


@function("any int ->", _digest, returns=_digest_type)
def sha2(column: Column, bits: int) -> Expr:
    """The SHA-2 digest of a text or a binary, in hexadecimal: of 224, 256 (or 0), 384
    or 512 bits, and null of any other number."""
    return call("sha2", column_of(column), bits)


@function("binary -> text", "base64({0})")
def base64(column: Column) -> Expr:
    """A binary in base 64."""
    return call("base64", column_of(column))


def _bytes(args: Sequence[Term]) -> str:
    digits = str(args[0].literal)
    if len(digits) % 2 == 0 and not set(digits) - set(string.hexdigits):
        return f"unhex('{digits}')"
    raise PlanError(
        "HR-EXPR-003",
        "unhex takes a literal of pairs of hexadecimal digits",
        "In Python write the bytes themselves: lit(b'...').",
    )


declare("unhex", "word -> binary", _bytes)
