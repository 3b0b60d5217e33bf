"""Rows as a transcript writes them: plain values, compared without order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from headrace.testing.times import moment


def plain_rows(rows: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    return [[plain(v) for v in row.values()] for row in rows]


def plain(value: Any) -> Any:
    """Times as seconds, whole numbers as integers, others as exact as fifteen digits are."""
    if isinstance(value, datetime):
        return plain(moment(value) / 1_000)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, float | Decimal):
        number = float(f"{value:.15g}")
        return int(number) if number.is_integer() else number
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    return value


def differences(expected: Iterable[Any], came: Iterable[Any]) -> tuple[list[str], list[str]]:
    """What was expected and did not come, and what came and was not expected."""
    wanted, found = (Counter(repr(plain(row)) for row in rows) for rows in (expected, came))
    return sorted((wanted - found).elements()), sorted((found - wanted).elements())
