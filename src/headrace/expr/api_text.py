"""Functions of text and bytes, for `headrace.functions`.

A text where a column is expected is the column's name; elsewhere it is the text itself.
"""

from __future__ import annotations

from typing import Any

from headrace.expr.expression import Column, Expr, call, column_of
from headrace.expr.regex import literal_pattern


def upper(column: Column) -> Expr:
    """In upper case."""
    return call("upper", column_of(column))


def lower(column: Column) -> Expr:
    """In lower case."""
    return call("lower", column_of(column))


def length(column: Column) -> Expr:
    """The number of characters."""
    return call("length", column_of(column))


def octet_length(column: Column) -> Expr:
    """The number of bytes of a text or a binary."""
    return call("octet_length", column_of(column))


def trim(column: Column, characters: str | None = None) -> Expr:
    """Without blanks, or without any of `characters`, at both ends."""
    rest = () if characters is None else (characters,)
    return call("trim", *rest, column_of(column))


def ltrim(column: Column, characters: str | None = None) -> Expr:
    """Without blanks, or without any of `characters`, at the start."""
    rest = () if characters is None else (characters,)
    return call("ltrim", *rest, column_of(column))


def rtrim(column: Column, characters: str | None = None) -> Expr:
    """Without blanks, or without any of `characters`, at the end."""
    rest = () if characters is None else (characters,)
    return call("rtrim", *rest, column_of(column))


def substring(column: Column, start: Any, length: Any = None) -> Expr:
    """`length` characters from position `start`; the first is 1, the last -1."""
    rest = () if length is None else (length,)
    return call("substring", column_of(column), start, *rest)


def left(column: Column, count: Any) -> Expr:
    """The first `count` characters."""
    return call("left", column_of(column), count)


def right(column: Column, count: Any) -> Expr:
    """The last `count` characters."""
    return call("right", column_of(column), count)


def replace(column: Column, old: Any, new: Any = "") -> Expr:
    """With every `old` replaced by `new`."""
    return call("replace", column_of(column), old, new)


def translate(column: Column, old: Any, new: Any) -> Expr:
    """With each character of `old` replaced by the one at its place in `new`."""
    return call("translate", column_of(column), old, new)


def concat(*columns: Column) -> Expr:
    """One after another; null if one is null."""
    return call("concat", *map(column_of, columns))


def concat_ws(separator: str, *columns: Column) -> Expr:
    """Joined by a separator, without the nulls."""
    return call("concat_ws", separator, *map(column_of, columns))


def starts_with(column: Column, prefix: Any) -> Expr:
    """Whether it starts with `prefix`."""
    return call("starts_with", column_of(column), prefix)


def ends_with(column: Column, suffix: Any) -> Expr:
    """Whether it ends with `suffix`."""
    return call("ends_with", column_of(column), suffix)


def contains(column: Column, part: Any) -> Expr:
    """Whether `part` is in it."""
    return call("contains", column_of(column), part)


def instr(column: Column, part: Any) -> Expr:
    """The position of `part`, from 1; 0 if it is not there."""
    return call("instr", column_of(column), part)


def lpad(column: Column, width: Any, by: Any = " ") -> Expr:
    """Padded at the start, or cut, to `width` characters."""
    return call("lpad", column_of(column), width, by)


def rpad(column: Column, width: Any, by: Any = " ") -> Expr:
    """Padded at the end, or cut, to `width` characters."""
    return call("rpad", column_of(column), width, by)


def repeat(column: Column, times: Any) -> Expr:
    """Repeated `times` times."""
    return call("repeat", column_of(column), times)


def reverse(column: Column) -> Expr:
    """Its characters backwards."""
    return call("reverse", column_of(column))


def ascii(column: Column) -> Expr:
    """The code point of the first character; 0 of an empty text."""
    return call("ascii", column_of(column))


def split(column: Column, separator: str) -> Expr:
    """The parts between separators, as an array; in SQL text it is a regular expression."""
    return call("split", column_of(column), literal_pattern(separator))


def split_part(column: Column, separator: str, part: int) -> Expr:
    """One part between separators; the first is 1, the last -1."""
    return call("split_part", column_of(column), separator, part)


def like(column: Column, pattern: str, escape: str | None = None) -> Expr:
    """Whether it matches a SQL pattern: % is any text, _ any character."""
    return call("like", column_of(column), pattern, *(() if escape is None else (escape,)))


def ilike(column: Column, pattern: str, escape: str | None = None) -> Expr:
    """As `like`, in any case."""
    return call("ilike", column_of(column), pattern, *(() if escape is None else (escape,)))


def rlike(column: Column, pattern: str) -> Expr:
    """Whether a regular expression matches somewhere in it."""
    return call("rlike", column_of(column), pattern)


def regexp_replace(column: Column, pattern: str, by: str) -> Expr:
    """With every match replaced; $1 is the first group."""
    return call("regexp_replace", column_of(column), pattern, by)


def regexp_extract(column: Column, pattern: str, group: int = 1) -> Expr:
    """A group of the first match; empty without one."""
    return call("regexp_extract", column_of(column), pattern, group)


def md5(column: Column) -> Expr:
    """The MD5 digest in hexadecimal digits."""
    return call("md5", column_of(column))


def sha1(column: Column) -> Expr:
    """The SHA-1 digest in hexadecimal digits."""
    return call("sha1", column_of(column))


def sha256(column: Column) -> Expr:
    """The SHA-256 digest in hexadecimal digits."""
    return call("sha256", column_of(column))


def base64(column: Column) -> Expr:
    """A binary in base 64."""
    return call("base64", column_of(column))


def locate(part: Any, column: Column, start: Any = 1) -> Expr:
    """The position of `part` from 1, looked for from `start` on; 0 if it is not there."""
    return call("locate", part, column_of(column), start)


def initcap(column: Column) -> Expr:
    """Each word with a capital first letter, the others small; blanks separate words."""
    return call("initcap", column_of(column))


def sha2(column: Column, bits: int) -> Expr:
    """The SHA-2 digest of a text or a binary, in hexadecimal: of 224, 256 (or 0), 384
    or 512 bits, and null of any other number."""
    return call("sha2", column_of(column), bits)
