"""Keys, and columns of stored rows, that are wider: the state goes on, in wider columns.

A key may be wider where equal values have one hash and one order, as integers have whatever their
width. Another column of stored rows may be wider if no value changes. What is stored is
rewritten by `driver/setting_migration.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from headrace.ddl import ddl_of, ddl_type, read_fields, read_type
from headrace.hashing import hash_family
from headrace.ops.process.held_rows import HELD_ROWS
from headrace.ops.process.migration import WIDENED, MigratedPart, widens
from headrace.plan.nodes import Stateful

KEY, WHAT = "key", "what"
_ROWS, _COLUMNS = "rows", "columns"  # in which a shape lists the columns of stored rows

Shape = Mapping[str, Any]
Wider = dict[str, tuple[str, str]]  # the types before and now, by column


def wider_columns(node: Stateful, old: Shape, new: Shape) -> list[MigratedPart]:
    """The columns that are wider, of the key and of stored rows."""
    found, _ = _compared(node, old, new)
    return [MigratedPart(n, WIDENED, f"from {was} to {now}") for n, (was, now) in found.items()]


def as_wide_now(node: Stateful, old: Shape, new: Shape) -> dict[str, Any]:
    """The shape in a manifest, as if its columns had always been as wide as they are now."""
    return _compared(node, old, new)[1]


def _compared(node: Stateful, old: Shape, new: Shape) -> tuple[Wider, dict[str, Any]]:
    if not node.what.widens_keys or old.get("kind") != new.get("kind"):
        return {}, dict(old)
    compared = _Compared(node)
    return compared.found, compared.shape(old, new)


class _Compared:
    """A shape in a manifest beside that of the step now; `found` are the columns that are wider."""

    def __init__(self, node: Stateful) -> None:
        self._node, self.found = node, Wider()

    def shape(self, old: Shape, new: Shape) -> dict[str, Any]:
        """`old` with the columns as wide as they are in `new`."""
        made = {**old, KEY: self._key(old[KEY], new[KEY])}
        if _ROWS in old and _ROWS in new:
            made[_ROWS] = self._rows(old[_ROWS], new[_ROWS])
        if HELD_ROWS in old and HELD_ROWS in new:
            made[HELD_ROWS] = self._held(old[HELD_ROWS], new[HELD_ROWS])
        if WHAT in old and WHAT in new:
            was, now = old[WHAT], new[WHAT]
            parts = [p for p in (_ROWS, _COLUMNS) if _lists(was.get(p)) and _lists(now.get(p))]
            made[WHAT] = {**was, **{part: self._rows(was[part], now[part]) for part in parts}}
        return made

    def _key(self, old: Sequence[Any], new: Sequence[Any]) -> Sequence[Any]:
        if old == new or len(old) != len(new):
            return old
        named = self._node.what.keys_by_name
        found = Wider()
        for name, before, after in zip(self._node.keys[0], old, new, strict=True):
            was, now = (one[1] if named else one for one in (before, after))
            if (named and before[0] != after[0]) or (was != now and not _wider_key(was, now)):
                return old
            found |= {name: (was, now)} if was != now else {}
        self.found |= found
        return new

    def _rows(self, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        """Columns with their types; of a join such a list as text, for each input."""
        if not isinstance(old[0], str):
            return self._columns(old, new, 0)
        pairs = zip(old, new, strict=False)
        made = [self._text(was, now, port) for port, (was, now) in enumerate(pairs)]
        return made + list(old[len(made) :])

    def _held(self, old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        if len(old) != len(new):
            return list(old)
        pairs = enumerate(zip(old, new, strict=True))
        return [[was[0], self._columns(was[1], now[1], port)] for port, (was, now) in pairs]

    def _text(self, old: str, new: str, port: int) -> str:
        was, now = (pa.schema(read_fields(text)) for text in (old, new))
        if old == new or was.names != now.names or ddl_of(was) != old:
            return old
        before, after = ([[f.name, ddl_type(f.type)] for f in schema] for schema in (was, now))
        wider = self._columns(before, after, port)
        fields = zip(was, wider, strict=True)
        return ddl_of(pa.schema([f.with_type(read_type(kind)) for f, (_, kind) in fields]))

    def _columns(self, old: Sequence[Any], new: Sequence[Any], port: int) -> list[Any]:
        if [name for name, _ in old] != [name for name, _ in new]:
            return list(old)
        made = []
        for (name, was), (_, now) in zip(old, new, strict=True):
            is_wider = was != now and self._may_be(name, was, now, port)
            self.found |= {name: (was, now)} if is_wider else {}
            made.append([name, now if is_wider else was])
        return made

    def _may_be(self, name: str, was: str, now: str, port: int) -> bool:
        what = self._node.what
        if name in {*self._node.keys[port], *what.compares, *what.own_key}:
            return _wider_key(was, now)
        return widens(read_type(was), read_type(now))


def _lists(part: Any) -> bool:
    """Whether a part of a shape is a list of columns; the rows of a `top` are a number."""
    return isinstance(part, list) and len(part) > 0


def _wider_key(was: str, now: str) -> bool:
    """Whether a key of the one type is the same, and found, as one of the other."""
    a, b = read_type(was), read_type(now)
    return _exact(a) and _exact(b) and hash_family(a) == hash_family(b) and widens(a, b)


def _exact(kind: pa.DataType) -> bool:
    return bool(pt.is_integer(kind) or pt.is_decimal(kind))


def why_no_key(node: Stateful, old: Sequence[Any], new: Sequence[Any]) -> str:
    """Why what is stored by one key cannot go on by the other; empty where nothing is common."""
    if len(old) != len(new):
        return ""
    named = node.what.keys_by_name
    if named and [n for n, _ in old] != [n for n, _ in new]:
        return ""
    pairs = zip(old, new, strict=True)
    types = [(w[1], n[1]) if named else (w, n) for w, n in pairs if w != n]
    reasons = dict.fromkeys(reason for pair in types for reason in _reasons(*pair))
    return "; ".join(f": {reason}" for reason in list(reasons)[:1])


def _reasons(was: str, now: str) -> Iterator[str]:
    a, b = read_type(was), read_type(now)
    if pt.is_floating(a) and pt.is_floating(b):
        yield (
            f"most numbers are not the same as a {was} and as a {now} (0.1, for one), so rows of "
            "one key would be of two"
        )
    elif hash_family(a) != hash_family(b):
        yield (
            f"keys are found by their hash, and {hash_family(a)} have others than {hash_family(b)}"
        )
    elif widens(b, a):
        yield "not every key that is stored fits the narrower type"
