"""Regular expressions that RE2 (DuckDB) and Java (Spark) read the same way.

Invariant: a pattern that passes here matches the same texts in both engines; whatever they
read apart (look-around, back-references, flags, word boundaries, named classes) is refused
when the program is built, with HR-EXPR-003.
"""

from __future__ import annotations

import re
from functools import lru_cache

from headrace.errors import PlanError
from headrace.expr.types import DUCKDB, SPARK

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
_TOKEN = re.compile(
    r"(?P<escape>\\.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<group>\((?:\?:|(?!\?)))"
    r"|(?P<close>\))|(?P<count>\{\d{1,3}(?:,(?:\d{1,3})?)?\}\??)|(?P<repeat>[*+?]\??)"
    r"|(?P<anchor>[\^$])|(?P<dot>\.)|(?P<bar>\|)|(?P<char>[^\\\[\](){}*+?^$.|])",
    re.DOTALL,
)


@lru_cache(maxsize=512)
def both_patterns(pattern: str) -> dict[str, str]:
    """The pattern for each engine; "groups" is their number, "empty" whether it matches nothing."""
    out, at, repeated = [], 0, True
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise _refused(pattern, f"{pattern[at : at + 3]!r} is not offered")
        kind, text = str(token.lastgroup), token.group()
        if kind in ("repeat", "count") and repeated:
            raise _refused(pattern, f"{text!r} follows nothing that repeats")
        repeated = kind in ("repeat", "count", "group", "bar", "anchor")
        out.append(_translated(kind, text, pattern))
        at = token.end()
    python, made = _compiled(pattern), "".join(out)
    return {
        DUCKDB: made,
        SPARK: made,
        "groups": str(python.groups),
        "empty": "yes" * bool(python.search("")),
    }


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, RecursionError) as error:
        raise _refused(pattern, str(error)) from None


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
    raise _refused(pattern, f"'\\{char}' is not offered")


def _class(text: str, pattern: str) -> str:
    inner, negated = text[1:-1], text.startswith("[^")
    inner = inner[1:] if negated else inner
    if "[" in inner.replace("\\[", "") or "&&" in inner or inner.startswith("]") or not inner:
        raise _refused(pattern, f"the class {text!r} is not offered")
    made = re.sub(r"\\(.)", lambda m: _escape(m[1], pattern, _INSIDE), inner, flags=re.DOTALL)
    return f"[{'^' * negated}{made}]"


_SPECIAL = re.compile(r"[\\^$.|?*+()\[\]{}]")


def literal_pattern(text: str) -> str:
    """A regular expression that matches just the text."""
    return _SPECIAL.sub(lambda sign: "\\" + sign[0], text)


def replacement(text: str) -> dict[str, str]:
    """A replacement with $1 to $9 for groups, for each engine."""
    if "\\" in text or re.search(r"\$(?![1-9](?![0-9]))", text):
        raise PlanError(
            "HR-EXPR-003",
            f"the replacement {text!r} holds a backslash or a bare $",
            "Use $1 to $9 for the groups.",
        )
    return {DUCKDB: re.sub(r"\$([1-9])", r"\\\1", text), SPARK: text}


def _refused(pattern: str, why: str) -> PlanError:
    return PlanError(
        "HR-EXPR-003",
        f"in the pattern {pattern!r}: {why}",
        "Patterns may use classes, \\d \\w \\s, groups, | and the repeats * + ? {m,n}; "
        "for more, use a Python function.",
    )
