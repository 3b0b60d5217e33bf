"""Spark as an oracle of expressions: it gets the user's own text, never our tree.

An expression over a table has one outcome a row: a value, or a failure. Many texts share a
query; only when a query fails are its texts, and then its rows, asked for one by one.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headrace.errors import PlanError
from headrace.expr import parsed
from headrace.kernel import SelectStep, compile_chain

BATCH = 50
# With it a small table is computed before the rules that a user's own rows would go through.
_TABLES_AS_LITERALS = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
# Values are computed as for a user, by compiled code; what fails is found without compiling.
_INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a row has no value: Spark's error condition, or our message."""

    why: str


@dataclass(frozen=True, slots=True)
class Difference:
    text: str
    row: int
    ours: Any
    theirs: Any

    def __str__(self) -> str:
        return f"{self.text}  [row {self.row}]  ours {self.ours!r}  Spark {self.theirs!r}"


@dataclass(slots=True)
class Comparison:
    """What came of a list of texts."""

    compared: int = 0
    values: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)


def by_kernel(table: pa.Table, text: str) -> list[Any]:
    """Our outcomes; a PlanError if the text is refused."""
    kernel = compile_chain([SelectStep(columns=(("r", parsed(text)),))], table.schema)
    good, bad = kernel.run(table)
    failed = {row: Failure(str(why)) for row, why in bad}
    values = iter(values_of(good.column("r")))
    return [failed[row] if row in failed else next(values) for row in range(table.num_rows)]


def values_of(column: pa.ChunkedArray) -> list[Any]:
    return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except UnicodeDecodeError:
        return Failure("bytes that are no text")
    except (OverflowError, ValueError):  # a time that Python cannot hold
        return f"{scalar.type} {getattr(scalar, 'value', scalar)}"


class Oracle:
    """A Spark session in its default, ANSI, mode with the time zone UTC."""

    def __init__(self, spark: Any, table: pa.Table) -> None:
        logging.getLogger("SQLQueryContextLogger").disabled = True  # it prints every failure
        self.rows = table.num_rows
        numbered = table.append_column("row", pa.array(range(table.num_rows)))
        self.frame = _session(spark, {}).createDataFrame(numbered)
        self.interpreted = _session(spark, _INTERPRETED).createDataFrame(numbered)

    def outcomes(self, texts: Sequence[str], skip: dict[str, set[int]]) -> dict[str, list[Any]]:
        """The outcomes of each text but on the rows to skip; a Failure for a text refused."""
        found: dict[str, list[Any]] = {}
        for start in range(0, len(texts), BATCH):
            found |= self._batch(texts[start : start + BATCH], skip)
        return found

    def _batch(self, texts: Sequence[str], skip: dict[str, set[int]]) -> dict[str, list[Any]]:
        try:
            made = _selected(self.frame, texts, skip)
        except Exception as error:  # PySpark has one class per kind of failure
            if len(texts) > 1:
                return self._parted(texts, skip)
            return {texts[0]: self._one_by_one(texts[0], error, skip.get(texts[0], set()))}
        return {text: values_of(made.column(i)) for i, text in enumerate(texts)}

    def _parted(self, texts: Sequence[str], skip: dict[str, set[int]]) -> dict[str, list[Any]]:
        """What fails is computed text by text, and the rest together."""
        failing = self._failing(texts, skip)
        rest = [text for text in texts if text not in failing]
        middle = 0 if failing else len(rest) // 2
        parts = [*([text] for text in failing), rest[:middle], rest[middle:]]
        return {t: o for part in parts if part for t, o in self._batch(part, skip).items()}

    def _failing(self, texts: Sequence[str], skip: dict[str, set[int]]) -> Sequence[str]:
        """The texts that fail, found by halves."""
        try:
            _selected(self.interpreted, texts, skip)
        except Exception:
            middle = len(texts) // 2
            if not middle:
                return texts
            halves = (texts[:middle], texts[middle:])
            return [text for half in halves for text in self._failing(half, skip)]
        return []

    def _one_by_one(self, text: str, error: Exception, skip: set[int]) -> list[Any]:
        if refused(error):
            return [condition(error)] * self.rows
        asked = [row for row in range(self.rows) if row not in skip]
        failed = self._failures(text, asked)
        if not failed:  # it fails only beside the guard, or only among others
            return [self.one(text, row) if row in asked else None for row in range(self.rows)]
        made = self._batch([text], {text: skip | failed.keys()})[text]
        return [failed.get(row, value) for row, value in enumerate(made)]

    def _failures(self, text: str, rows: list[int]) -> dict[int, Failure]:
        """The rows on which it fails, found by halves."""
        if not rows:
            return {}
        try:
            among = ", ".join(map(str, rows))
            self.interpreted.where(f"row IN ({among})").selectExpr(f"{text} AS r").collect()
        except OverflowError:  # a time that Python cannot hold
            return {}
        except Exception as error:
            if len(rows) == 1:
                return {rows[0]: condition(error)}
            middle = len(rows) // 2
            return self._failures(text, rows[:middle]) | self._failures(text, rows[middle:])
        return {}

    def one(self, text: str, row: int) -> Any:
        try:
            asked = self.interpreted.where(f"row = {row}").selectExpr(f"{text} AS r")
            return values_of(asked.toArrow().column(0))[0]
        except pa.ArrowInvalid:  # PySpark cannot convert a null struct whose fields are not null
            return asked.collect()[0].asDict(recursive=True)["r"]
        except Exception as error:
            return condition(error)


def _session(spark: Any, settings: dict[str, str]) -> Any:
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.optimizer.excludedRules", _TABLES_AS_LITERALS)
    for name, value in settings.items():
        own.conf.set(name, value)
    assert own.conf.get("spark.sql.ansi.enabled") == "true"
    return own


def _selected(frame: Any, texts: Sequence[str], skip: dict[str, set[int]]) -> pa.Table:
    columns = [f"{_guarded(t, skip.get(t, set()))} AS r{i}" for i, t in enumerate(texts)]
    return frame.selectExpr(*columns).toArrow()


def _guarded(text: str, skip: set[int]) -> str:
    return f"CASE WHEN row NOT IN ({', '.join(map(str, skip))}) THEN {text} END" if skip else text


def refused(error: Exception) -> bool:
    return type(error).__name__ in ("AnalysisException", "ParseException")


def condition(error: Any) -> Failure:
    named = getattr(error, "getCondition", lambda: None)()
    return Failure(named or f"{type(error).__name__} {str(error)[:80]}")


def close(a: Any, b: Any) -> bool:
    """The same value of the same kind; doubles up to the last bits, NaN equals NaN."""
    if isinstance(a, float) and isinstance(b, float):
        near_zero = 1e-14 if abs(a) > 1e-6 else 0.0  # cos and others, near a root
        return (
            math.isclose(a, b, rel_tol=1e-13, abs_tol=near_zero)
            or a == b
            or (math.isnan(a) and math.isnan(b))
        )
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, Failure) or isinstance(b, Failure):
        return isinstance(a, Failure) and isinstance(b, Failure)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b
    return bool(a == b) and type(a) is type(b)


_REMAINDER = re.compile(r"\bp?mod\(|%")
_ROUNDED = re.compile(r"\b(log\w*|ln|exp\w*|pow\w*|sqrt|cbrt|a?(sin|cos|tan)\w*)\(")


def _last_bit_multiplied(text: str, a: Any, b: Any) -> bool:
    """Whether they differ as remainders do by a divisor of which the last bit differs.

    1e3 mod log2(x) multiplies that bit by the quotient.
    """
    doubles = isinstance(a, float) and isinstance(b, float)
    inexact = _REMAINDER.search(text) and _ROUNDED.search(text)
    return bool(doubles and inexact) and math.isclose(a, b, rel_tol=1e-9)


def compare(oracle: Oracle, table: pa.Table, pairs: Iterable[tuple[str, str]]) -> Comparison:
    """Every pair of texts: the one by our kernel, the other by Spark."""
    done, ours, asked = Comparison(), dict[str, list[Any]](), dict(pairs)
    for text in asked:
        try:
            ours[text] = by_kernel(table, text)
        except PlanError as error:
            done.refused[text] = f"{error.code} {error.message}"
        except Exception as error:  # neither a value, nor refused by name
            done.differences.append(Difference(text, -1, Failure(repr(error)), "no such error"))
    failed = {t: {r for r, v in enumerate(o) if isinstance(v, Failure)} for t, o in ours.items()}
    theirs = oracle.outcomes([asked[t] for t in ours], {asked[t]: failed[t] for t in ours})
    for text, outcomes in ours.items():
        done.compared += 1
        done.values += len(outcomes)
        for row, (a, b) in enumerate(zip(outcomes, theirs[asked[text]], strict=True)):
            if row not in failed[text] and not (close(a, b) or _last_bit_multiplied(text, a, b)):
                done.differences.append(Difference(text, row, a, b))
        for row in sorted({*sorted(failed[text])[:1], *sorted(failed[text])[-1:]}):
            b = oracle.one(asked[text], row)
            if not isinstance(b, Failure):
                done.differences.append(Difference(text, row, outcomes[row], b))
    return done
