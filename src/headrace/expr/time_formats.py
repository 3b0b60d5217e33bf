"""Datetime patterns of Spark that both engines can be given: a few letters, signs, quoted text.

Invariant: a pattern that passes here is written, or read, the same way by DuckDB and by Spark;
any other letter, or an order of fields that Spark would read differently, is HR-EXPR-003.
"""

from __future__ import annotations

import re

from headrace.errors import PlanError
from headrace.expr.types import DUCKDB, Term, text_literal

_WRITTEN = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S",
            "SSSSSS": "%f", "SSS": "%g", "DDD": "%j"}  # fmt: skip
_READ = {"yyyy": "[0-9]{4}", "MM": "0[1-9]|1[0-2]", "dd": "0[1-9]|[12][0-9]|3[01]",
         "HH": "[01][0-9]|2[0-3]", "mm": "[0-5][0-9]", "ss": "[0-5][0-9]",
         "SSS": "[0-9]{1,3}", "SSSSSS": "[0-9]{1,6}"}  # fmt: skip
_NEEDS = {"dd": "MM", "HH": "dd", "mm": "HH", "ss": "mm", "SSS": "ss", "SSSSSS": "ss"}
_TOKEN = re.compile(r"(?P<field>([A-Za-z])\2*)|'(?P<quoted>[^']*)'|(?P<sign>[^A-Za-z'\[\]{}#])")


def tokens(pattern: str) -> list[tuple[str, str]]:
    """("field", letters) and ("text", as it stands) in turn."""
    found, at = [], 0
    while at < len(pattern):
        token = _TOKEN.match(pattern, at)
        if token is None:
            raise refused(pattern, pattern[at])
        if token["field"]:
            found.append(("field", token["field"]))
        else:  # '' is a quotation mark
            text = token["sign"] if token["quoted"] is None else token["quoted"] or "'"
            found.append(("text", text))
        at = token.end()
    return found


def refused(pattern: str, part: str) -> PlanError:
    return PlanError(
        "HR-EXPR-003",
        f"the format {pattern!r} holds {part!r}",
        f"Use {', '.join(_WRITTEN)} and signs between them.",
    )


def written(format: Term) -> str:
    """The pattern for DuckDB's strftime, as a literal."""
    pattern, made = str(format.literal), ""
    if not pattern:
        raise PlanError("HR-EXPR-003", "the format is empty", "Write it as in 'yyyy-MM'.")
    for kind, text in tokens(pattern):
        if kind == "field" and text not in _WRITTEN:
            raise refused(pattern, text)
        made += _WRITTEN[text] if kind == "field" else text.replace("%", "%%")
    return text_literal(made, DUCKDB)


def read(pattern: str) -> tuple[str, str]:
    """(a regular expression for texts of this pattern, their ISO spelling by its groups)."""
    regex, fields, after = "", [], ""
    for kind, text in tokens(pattern):
        if kind == "text":
            regex += re.escape(text)
        elif text not in _READ or text in fields or (text[0] == "S" and after == "field"):
            raise refused(pattern, text)  # Spark does not read a fraction right after a digit
        else:
            fields.append(text)
            regex += f"({_READ[text]})"
        after = kind
    _complete(pattern, fields)
    return rf"\A{regex}\z", _iso({f[:2]: rf"\{i + 1}" for i, f in enumerate(fields)})


def _iso(of: dict[str, str]) -> str:
    day = f"{of['yy']}-{of.get('MM', '01')}-{of.get('dd', '01')}"
    time = f"{of.get('HH', '00')}:{of.get('mm', '00')}:{of.get('ss', '00')}"
    return f"{day} {time}.{of.get('SS', '0')}"


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
        raise refused(pattern, "two fractions")
