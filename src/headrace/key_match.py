"""One key, by the names and the texts of its columns, found in tables and in texts.

Three questions, from the surest to the widest: which rows of a table are of the key (`rows`), which
records, that are bytes, are (`records`); and where its value is at all, in whatever column or text
(`mentions`), which is how a scan proves that it is gone. A text is compared as each column's type
reads it; in JSON, where 2.5 may be "2.50" and a time has many spellings, as the types read it that
columns of the name have elsewhere. Nothing here knows of files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.arrays import Mask, numbers
from headrace.kernel.text_cast import cast_text

_UNNAMED = re.compile(r"\$?[kvc]\d+")  # columns of state whose names are stored nowhere
_SHORT = 4  # a number of fewer digits is part of too much to be searched for within texts


@dataclass(frozen=True)
class KeyMatch:
    """A key: the texts of its columns, by name, and the types that columns of the name have."""

    columns: Mapping[str, str]
    kinds: Mapping[str, Sequence[pa.DataType]] = field(default_factory=dict)

    def __str__(self) -> str:
        return " ".join(f"{name}={text}" for name, text in self.columns.items())

    # Which rows

    def rows(self, table: pa.Table, names: Mapping[str, str] | None = None) -> Mask:
        """The rows that have this key; none if a column is not there.

        `names` are the columns as the table calls them, by the user's names.
        """
        found = np.ones(table.num_rows, np.bool_)
        for name, text in self.columns.items():
            here = name if names is None else names.get(name, "")
            if here not in table.column_names or table.column_names.count(here) > 1:
                return np.zeros(table.num_rows, np.bool_)
            found &= _equal(table.column(here), text)
        return found

    def records(self, values: Sequence[bytes | str | None]) -> list[bool | None]:
        """Of records as JSON: whether they are of the key; None for what does not say so."""
        return [None if value is None else self._of_json(value) for value in values]

    def _of_json(self, value: bytes | str) -> bool | None:
        try:
            document = json.loads(value)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or not self.columns.keys() <= document.keys():
            return None
        return all(self._same(document[name], name) for name in self.columns)

    def _same(self, value: Any, name: str) -> bool:
        text, kinds = self.columns[name], self.kinds.get(name, ())
        if _same(value, text):
            return True
        told = json.dumps(value) if isinstance(value, bool) else str(value)
        if value is None or isinstance(value, dict | list) or not kinds:
            return False
        return all(_alike(told, text, kind) for kind in kinds)

    def _names_it(self, document: Any, name: str) -> bool:
        """Whether a JSON value has the field with the key's value, at any depth."""
        if isinstance(document, dict):
            if name in document and self._same(document[name], name):
                return True
            document = list(document.values())
        return isinstance(document, list) and any(self._names_it(d, name) for d in document)

    # Where it is mentioned

    @property
    def single(self) -> tuple[str, str] | None:
        """The one column, if there is only one: of several, none alone says anything."""
        return next(iter(self.columns.items())) if len(self.columns) == 1 else None

    def mentions(self, table: pa.Table) -> dict[str, int]:
        """By column: in how many values the key still occurs, at any depth."""
        found = dict[str, int]()
        if self.single is None:
            whole = int(self._rows_at_any_depth(table).sum())
            return {" and ".join(self.columns): whole} if whole else {}
        for name, column in zip(table.column_names, table.columns, strict=True):
            for path, leaf in _leaves(name, column.combine_chunks()):
                if count := self._in_leaf(path, leaf):
                    found[path] = found.get(path, 0) + count
        return found

    def _rows_at_any_depth(self, table: pa.Table) -> Mask:
        """The rows that have every column of the key, be it within a struct or a text of JSON."""
        found = {name: np.zeros(table.num_rows, np.bool_) for name in self.columns}
        for column, values in zip(table.column_names, table.columns, strict=True):
            for path, leaf in _aligned(column, values.combine_chunks()):
                field = path.rpartition(".")[2]
                if field in found:
                    found[field] |= _equal(leaf, self.columns[field])
                if _is_text(leaf.type):
                    for name in found:
                        found[name] |= self._in_each_document(leaf, name)
        return reduce(np.logical_and, found.values())

    def _in_each_document(self, leaf: pa.Array, name: str) -> Mask:
        texts = leaf.cast(pa.large_binary())
        likely = numbers(pc.match_substring(texts, json.dumps(name)).fill_null(False))
        found = np.zeros(len(leaf), np.bool_)
        for row in np.flatnonzero(likely):
            found[row] = self._in_document(texts[row].as_py(), name)
        return found

    def _in_leaf(self, path: str, leaf: pa.Array) -> int:
        assert self.single is not None
        name, text = self.single
        field = path.rpartition(".")[2]
        if _is_text(leaf.type) and field != name:
            return self.in_texts(leaf)
        if _is_text(leaf.type):  # of `ann-marie` it is a part, and she is somebody else
            whole = _equal(leaf, text)
            return int((whole | self._in_each_document(leaf, name)).sum())
        if field != name and not _UNNAMED.fullmatch(field) and self._number:
            return 0
        return int(_equal(leaf, text).sum())

    def in_texts(self, leaf: pa.Array) -> int:
        """How many texts, or bytes, are the key's value or have it within."""
        assert self.single is not None
        name, text = self.single
        known = leaf.drop_null().cast(pa.large_binary())
        likely = pc.match_substring(known, name if self._word is None else text)
        likely = pc.or_(likely, pc.equal(known, pa.scalar(text.encode(), pa.large_binary())))
        if self._spelled:
            likely = pc.or_(likely, pc.match_substring(known, f'"{name}"'))
        if not text.isascii() or json.dumps(text)[1:-1] != text:  # it may be escaped, in JSON
            likely = pc.or_(likely, pc.match_substring(known, "\\"))
        return sum(self.in_text(value) for value in known.filter(likely).to_pylist())

    def in_text(self, value: bytes | str) -> bool:
        """Whether a text is the key's value, has it as a word, or names it as a field of JSON.

        In JSON a field of the key's name is compared as a whole, as a column is.
        """
        assert self.single is not None
        text = value if isinstance(value, bytes) else value.encode()
        if text == self.single[1].encode():
            return True
        if self._field.search(text):
            return True
        if self._word is not None and self._word.search(text):
            return self._is_said(text)
        return self._spelled and self._in_document(text, self.single[0])

    def _is_said(self, text: bytes) -> bool:
        """Of a text that has it as a word: not only as a part of another key, in JSON."""
        try:
            return self._in_values(json.loads(text))
        except (ValueError, RecursionError):
            return True

    def _in_values(self, document: Any) -> bool:
        assert self.single is not None and self._word is not None
        if isinstance(document, dict):
            own = document.pop(self.single[0], None)
            plain = not isinstance(own, dict | list)
            if self._same(own, self.single[0]) if plain else self._in_values(own):
                return True
            document = [*document, *document.values()]
        if isinstance(document, list):
            return any(map(self._in_values, document))
        if isinstance(document, str):
            return self.in_text(document)
        return bool(self._word.search(json.dumps(document).encode()))

    def _in_document(self, text: bytes, name: str) -> bool:
        try:
            return self._names_it(json.loads(text), name)
        except (ValueError, RecursionError):
            return False

    @cached_property
    def _spelled(self) -> bool:
        """Whether its value may be spelled in several ways."""
        assert self.single is not None
        return any(not _is_text(kind) for kind in self.kinds.get(self.single[0], ()))

    def in_bytes(self, data: bytes) -> int:
        """How often a file that is not read otherwise has it, as a word."""
        if self.single is None:
            return 0
        return sum(1 for _ in (self._word or self._field).finditer(data))

    @property
    def bytes_of_it(self) -> bytes | None:
        """What is in a file that has it, whatever its format; None if that is not to be said."""
        return None if self.single is None or self._number else self.single[1].encode()

    def in_json(self, value: Any) -> int:
        """The same of a JSON value: of its texts, because its numbers are counts and places."""
        if self.single is None or self._number:
            return self.in_bytes("\n".join(_texts(value)).encode())
        return sum(1 for text in _texts(value) if self.in_text(text))

    @cached_property
    def _number(self) -> bool:
        assert self.single is not None
        try:
            Decimal(self.single[1])
        except InvalidOperation:
            return self.single[1].lower() in ("true", "false")
        return True

    @cached_property
    def _word(self) -> re.Pattern[bytes] | None:
        assert self.single is not None
        text = self.single[1]
        if len(text) < (_SHORT if self._number else _SHORT - 1):
            return None
        spelt = {text.encode(), json.dumps(text)[1:-1].encode()}
        spelt |= {json.dumps(text, ensure_ascii=False)[1:-1].encode()}
        either = b"|".join(re.escape(one) for one in sorted(spelt))
        return re.compile(rb"(?<![\w\x80-\xff])(?:" + either + rb")(?![\w\x80-\xff])")

    @cached_property
    def _field(self) -> re.Pattern[bytes]:
        assert self.single is not None
        name, text = (json.dumps(t)[1:-1].encode() for t in self.single)
        return re.compile(
            rb'"' + re.escape(name) + rb'"\s*:\s*"?' + re.escape(text) + rb'"?(?=\s*[,}\]])'
        )


def value_as(text: str, kind: pa.DataType) -> pa.Scalar | None:
    """The value that a text is in a column of a type; None if it is none."""
    if pa.types.is_dictionary(kind):
        return value_as(text, kind.value_type)
    if _is_text(kind):
        data = text.encode()
        if text.startswith("0x") and not (
            pa.types.is_string(kind) or pa.types.is_large_string(kind)
        ):
            try:
                data = bytes.fromhex(text[2:])
            except ValueError:
                data = text.encode()
        return pa.scalar(data, pa.binary()).cast(kind)
    if pa.types.is_nested(kind):
        return None
    try:
        typed, bad = cast_text(pa.array([text.encode()], pa.binary()), kind)
    except (pa.ArrowException, ValueError, NotImplementedError):
        return None
    return None if bad or not typed[0].is_valid else typed[0]


_value_as = lru_cache(maxsize=1 << 16)(value_as)  # of records: many say the same


def _equal(column: pa.Array | pa.ChunkedArray, text: str) -> Mask:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    value = value_as(text, column.type)
    if value is None:
        return np.zeros(len(column), np.bool_)
    if pa.types.is_floating(column.type) and value.as_py() != value.as_py():
        same = pc.is_nan(column)
    else:
        same = pc.equal(column, value)
    return numbers(same.fill_null(False))


def _alike(one: str, other: str, kind: pa.DataType) -> bool:
    """Whether a type reads the same from both texts."""
    if _is_text(kind):
        return one == other
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):  # quickly
        with suppress(InvalidOperation):
            if Decimal(one) != Decimal(other):
                return False
    value = _value_as(one, kind)
    return value is not None and value == _value_as(other, kind)


def _same(value: Any, text: str) -> bool:
    if isinstance(value, str):
        return value == text
    if isinstance(value, bool):
        return text == json.dumps(value)
    if isinstance(value, int | float):
        try:
            return Decimal(str(value)) == Decimal(text)
        except InvalidOperation:
            return False
    return False


def _texts(value: Any) -> Iterator[str]:
    """Every text in a JSON value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(
        of(kind)
        for of in (
            pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
            pa.types.is_large_binary, pa.types.is_fixed_size_binary,
        )
    )  # fmt: skip


def _aligned(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Of the plain values of a column those of which each row has one."""
    if pa.types.is_struct(array.type):
        for field, inner in zip(array.type, array.flatten(), strict=True):
            yield from _aligned(f"{path}.{field.name}", inner)
    elif pa.types.is_dictionary(array.type):
        yield from _aligned(path, array.dictionary_decode())
    elif not pa.types.is_nested(array.type):
        yield path, array


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """The plain values of a column, at any depth, with the names that lead there."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        yield from _leaves(path, array.dictionary_decode())
    elif pa.types.is_struct(kind):
        for field, inner in zip(kind, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", inner)
    elif pa.types.is_map(kind):
        array = array.take(pa.array(np.arange(len(array))))  # a slice has all of its keys
        yield from _leaves(f"{path}.key", array.keys)
        yield from _leaves(f"{path}.value", array.items)
    elif pa.types.is_nested(kind):
        yield from _leaves(path, array.flatten())
    else:
        yield path, array
