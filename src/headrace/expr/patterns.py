"""Patterns inside expressions: regular expressions, LIKE, formats of times, JSON paths.

Invariant: a pattern that passes here means the same to DuckDB and to Spark; whatever they read
differently is refused when the program is built, with HR-EXPR-003. In regular expressions (RE2
and Java) that is look-around, back-references, flags, word boundaries and named classes; in
formats any letter not listed, or an order of fields that Spark would read in its own way; in
paths ($.a.b[0], $['a'], $.a[*]) blanks, stars and quotes in names, and negative positions.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from headrace.errors import PlanError
from headrace.expr.types import Term, text_literal

# regular expressions

_SPACE = " \\t\\n\\x0B\\f\\r"
_DOT = r"[^\n\r\x{85}\x{2028}\x{2029}]"  # what ends a line for Java
_OUTSIDE = {
    "d": "[0-9]",
    "D": "[^0-9]",
    "w": "[a-zA-Z0-9_]",
    "W": "[^a-zA-Z0-9_]",
    "s": f"[{_SPACE}]",
    "S": f"[^{_SPACE}]",
}
_INSIDE = {"d": "0-9", "w": "a-zA-Z0-9_", "s": _SPACE}
_PLAIN_ESCAPES = "tnrf"
_SIGNS = set("\\^$.|?*+()[]{}/-,:;'\"#&%@!<>=~_ ")
_COUNT = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}")
_REGEX_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<group>\((?:\?:|(?!\?)))"
    r"|(?P<close>\))|(?P<count>\{\d{1,3}(?:,(?:\d{1,3})?)?\}\??)|(?P<repeat>[*+?]\??)"
    r"|(?P<anchor>[\^$])|(?P<dot>\.)|(?P<bar>\|)|(?P<char>[^\\\[\](){}*+?^$.|])",
    re.DOTALL,
)


class Regex(NamedTuple):
    """A pattern in the spelling for SQL engines."""

    sql: str
    groups: int
    matches_empty: bool


@lru_cache(maxsize=512)
def regex(pattern: str) -> Regex:
    """The pattern, if all engines read it the same way; HR-EXPR-003 if not."""
    out, at, repeated = [], 0, True
    while at < len(pattern):
        token = _REGEX_TOKEN.match(pattern, at)
        if token is None:
            raise _bad_regex(pattern, f"{pattern[at : at + 3]!r} is not supported")
        kind, text = str(token.lastgroup), token.group()
        if kind in ("repeat", "count") and repeated:
            raise _bad_regex(pattern, f"{text!r} follows nothing that repeats")
        repeated = kind in ("repeat", "count", "group", "bar", "anchor")
        out.append(_translated(kind, text, pattern))
        at = token.end()
    python = _compiled(pattern)
    return Regex("".join(out), python.groups, bool(python.search("")))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise _bad_regex(pattern, str(error)) from None


def _translated(kind: str, text: str, pattern: str) -> str:
    if kind == "escape":
        return _escape(text[1], pattern, _OUTSIDE)
    if kind == "class":
        return _class(text, pattern)
    if kind == "anchor":
        return "\\A" if text == "^" else "\\z"
    return _DOT if kind == "dot" else text


def _escape(char: str, pattern: str, classes: dict[str, str]) -> str:
    if char in classes:
        return classes[char]
    if char in _PLAIN_ESCAPES or char in _SIGNS:
        return "\\" + char
    raise _bad_regex(pattern, f"'\\{char}' is not supported")


def _class(text: str, pattern: str) -> str:
    inner, negated = text[1:-1], text.startswith("[^")
    inner = inner[1:] if negated else inner
    if "[" in inner.replace("\\[", "") or "&&" in inner or inner.startswith("]") or not inner:
        raise _bad_regex(pattern, f"the class {text!r} is not supported")
    translated = re.sub(r"\\(.)", lambda m: _escape(m[1], pattern, _INSIDE), inner, flags=re.DOTALL)
    return f"[{'^' * negated}{translated}]"


_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


def literal_pattern(text: str) -> str:
    """A regular expression that matches just the text."""
    return _SPECIAL.sub(lambda sign: "\\" + sign[0], text)


def replacement(text: str) -> str:
    """A replacement with $1 to $9 for groups, as DuckDB writes them."""
    if "\\" in text or re.search(r"\$(?![1-9](?![0-9]))", text):
        raise PlanError(
            "HR-EXPR-003",
            f"the replacement {text!r} holds a backslash or a bare $",
            "Use $1 to $9 for the groups.",
        )
    return re.sub(r"\$([1-9])", r"\\\1", text)


def _bad_regex(pattern: str, why: str) -> PlanError:
    return PlanError(
        "HR-EXPR-003",
        f"in the pattern {pattern!r}: {why}",
        "Patterns may use classes, \\d \\w \\s, groups, | and the repeats * + ? {m,n}; "
        "for more, use a Python function.",
    )


# LIKE


def like_pattern(pattern: str, escape: str = "\\") -> str:
    """A LIKE pattern in which what is escaped by another character is so by a backslash."""
    if len(escape) != 1:
        raise PlanError(
            "HR-EXPR-003",
            f"ESCAPE takes one character, not {escape!r}",
            "Write s like 'a/%b' escape '/'.",
        )
    escaped, signs = "", iter(pattern)
    for sign in signs:
        follows = next(signs, "") if sign == escape else None
        if follows is not None and (not follows or follows not in f"%_{escape}"):
            raise PlanError(
                "HR-EXPR-003",
                f"in the LIKE pattern {pattern!r}, {escape!r} escapes something other than %, _ "
                "and itself",
                f"Double a {escape!r} that is meant as such.",
            )
        escaped += sign if follows is None and sign != "\\" else "\\" + (follows or sign)
    return escaped


# formats of times

_WRITTEN = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S",
            "SSSSSS": "%f", "SSS": "%g", "DDD": "%j"}  # fmt: skip
_READ = {"yyyy": "[0-9]{4}", "MM": "0[1-9]|1[0-2]", "dd": "0[1-9]|[12][0-9]|3[01]",
         "HH": "[01][0-9]|2[0-3]", "mm": "[0-5][0-9]", "ss": "[0-5][0-9]",
         "SSS": "[0-9]{1,3}", "SSSSSS": "[0-9]{1,6}"}  # fmt: skip
_NEEDS = {"dd": "MM", "HH": "dd", "mm": "HH", "ss": "mm", "SSS": "ss", "SSSSSS": "ss"}
_TIME_TOKEN = re.compile(
    r"(?P<field>([A-Za-z])\2*)|'(?P<quoted>[^']*)'|(?P<sign>[^A-Za-z'\[\]{}#])"
)


def _tokens(pattern: str) -> list[tuple[str, str]]:
    """("field", letters) and ("text", as written) in turn."""
    tokens, at = [], 0
    while at < len(pattern):
        token = _TIME_TOKEN.match(pattern, at)
        if token is None:
            raise _bad_format(pattern, pattern[at])
        if token["field"]:
            tokens.append(("field", token["field"]))
        else:  # '' is a quotation mark
            text = token["sign"] if token["quoted"] is None else token["quoted"] or "'"
            tokens.append(("text", text))
        at = token.end()
    return tokens


def _bad_format(pattern: str, part: str) -> PlanError:
    return PlanError(
        "HR-EXPR-003",
        f"the format {pattern!r} holds {part!r}",
        f"Use {', '.join(_WRITTEN)} and signs between them.",
    )


def time_writer(format: Term) -> str:
    """The pattern for DuckDB's strftime, as a literal."""
    pattern, written = str(format.literal), ""
    if not pattern:
        raise PlanError("HR-EXPR-003", "the format is empty", "Write it as in 'yyyy-MM'.")
    for kind, text in _tokens(pattern):
        if kind == "field" and text not in _WRITTEN:
            raise _bad_format(pattern, text)
        written += _WRITTEN[text] if kind == "field" else text.replace("%", "%%")
    return text_literal(written)


def time_reader(pattern: str) -> tuple[str, str]:
    """(a regular expression for texts of this pattern, their ISO spelling by its groups)."""
    regex, fields, after = "", [], ""
    for kind, text in _tokens(pattern):
        if kind == "text":
            regex += re.escape(text)
        elif text not in _READ or text in fields or (text[0] == "S" and after == "field"):
            raise _bad_format(pattern, text)  # Spark does not read a fraction right after a digit
        else:
            fields.append(text)
            regex += f"({_READ[text]})"
        after = kind
    _complete(pattern, fields)
    return rf"\A{regex}\z", _iso({f[:2]: rf"\{i + 1}" for i, f in enumerate(fields)})


def _iso(fields: dict[str, str]) -> str:
    day = f"{fields['yy']}-{fields.get('MM', '01')}-{fields.get('dd', '01')}"
    time = f"{fields.get('HH', '00')}:{fields.get('mm', '00')}:{fields.get('ss', '00')}"
    return f"{day} {time}.{fields.get('SS', '0')}"


def _complete(pattern: str, fields: list[str]) -> None:
    needed = ["yyyy", *(_NEEDS[f] for f in fields if f in _NEEDS)]
    missing = [f for f in needed if f not in fields]
    if missing:
        raise PlanError(
            "HR-EXPR-003",
            f"the format {pattern!r} has no {missing[0]}",
            "A time that is read needs yyyy, and with a smaller unit all larger ones.",
        )
    if {"SSS", "SSSSSS"} <= set(fields):
        raise _bad_format(pattern, "two fractions")


# paths into JSON documents: a step is a name, a position from 0, or ALL elements of an array

ALL = None
PathStep = str | int | None
_PATH_STEP = re.compile(r"\.([^.\['\"\]*?]+)|\['([^'?*]+)'\]|\[([0-9]+)\]|\[(\*)\]")


@lru_cache(maxsize=256)
def json_path(text: str) -> tuple[PathStep, ...]:
    """The steps of a path; HR-EXPR-003 if it is none."""
    steps: list[PathStep] = []
    place = 1 if text.startswith("$") else len(text) + 1
    while step := _PATH_STEP.match(text, place):
        name = step[1] or step[2]
        if name is not None and name != name.strip():
            break
        steps.append(name if name is not None else int(step[3]) if step[3] else ALL)
        place = step.end()
    if place != len(text):
        raise PlanError(
            "HR-EXPR-003",
            f"{text!r} is not a path into a document",
            "Write it as $.name, $['a name'], $.names[0] or $.names[*].",
        )
    return tuple(steps)
