"""Words of text: where one stands, and capital letters; digests by their length.

Invariant: a position counts characters from 1, 0 is "not there"; words are what ASCII blanks
separate, as in Spark's initcap.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr.catalog import offer
from headrace.expr.types import DIGEST, Term, failing

TEXT, BYTES = "text", "bytes and digests"

_FOUND = "instr(substring({1}, CAST({2} AS BIGINT)), {0})"
offer(
    TEXT,
    "locate",
    "text text int? -> int",
    "CAST(CASE WHEN {2} IS NULL THEN 0 WHEN {0} IS NULL OR {1} IS NULL THEN NULL "
    "WHEN {2} < 1 THEN 0 WHEN {0} = '' THEN 1 "
    f"WHEN {_FOUND} = 0 THEN 0 ELSE {_FOUND} + {{2}} - 1 END AS INTEGER)",
    "locate({0}, {1}, {2})",
)


@cache
def _titled() -> tuple[str, str]:
    """The characters that begin a capital word otherwise than by DuckDB's upper, and how."""
    every = map(chr, range(0x80, sys.maxunicode))
    odd = [c for c in every if c.title() != c.upper() or len(c.title()) > 1]
    return "".join(odd), "|".join(c.title() for c in odd)


_CASED = r"\p{Lu}\p{Ll}\p{Lt}"
_SIGMA, _FINAL = "\N{GREEK CAPITAL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}"
_DOTTED = "'\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}', 'i\N{COMBINING DOT ABOVE}'"


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
    made = f"array_to_string(list_transform(string_split({ended}, ' '), {word}), ' ')"
    odd = f"{_SIGMA}[^ {_CASED}]|[^ {_CASED}]{_SIGMA}"
    fail = failing("'initcap cannot tell whether a sigma ends a word in '", x)
    return f"(CASE WHEN regexp_matches({x}, '{odd}') THEN CAST({fail} AS VARCHAR) ELSE {made} END)"


offer(TEXT, "initcap", "text -> text", _initcap, "initcap({0})", may_fail=True)


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


offer(BYTES, "sha2", "any int ->", _digest, "sha2({0}, {1})", gives=_digest_type)
