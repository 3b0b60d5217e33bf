"""Which items of a chunk make a call fail: the chunk is tried whole, its items only if it fails.

By halving, where one call takes a range of items; one by one, where each item is a call of its
own. The caller decides what becomes of an item that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from headrace.arrays import Index
from headrace.rows import table_of

Errors: TypeAlias = "type[Exception] | tuple[type[Exception], ...]"
Item = TypeVar("Item")
Result = TypeVar("Result")


def by_halving(
    count: int,
    run: Callable[[int, int], Result],
    failed: Callable[[int, int, Exception], Result | None],
    *,
    tries: int | None = None,
    caught: Errors = Exception,
    fatal: Errors = (),
) -> Iterator[Result]:
    """`run(first, last)` over all items; where it raises, over halves of them, in order.

    What raises alone, or when `tries` are used up, goes to `failed`, whose result, if any, takes
    its place; `fatal` errors are raised.
    """
    parts = [(0, count)]
    while parts:
        first, last = parts.pop()
        tries = None if tries is None else tries - 1
        try:
            result = run(first, last)
        except caught as error:
            if isinstance(error, fatal):
                raise
            if last - first <= 1 or (tries is not None and tries < 0):
                substitute = failed(first, last, error)
                if substitute is not None:
                    yield substitute
            else:
                middle = (first + last) // 2
                parts += [(middle, last), (first, middle)]
        else:
            yield result


def one_by_one(
    items: Iterable[Item],
    run: Callable[[Item], Result],
    failed: Callable[[int, Exception], None],
    caught: Errors = Exception,
) -> Iterator[tuple[int, Result]]:
    """`run` of each item, with its number; those on which it raises go to `failed`."""
    for number, item in enumerate(items):
        try:
            result = run(item)
        except caught as error:
            failed(number, error)
        else:
            yield number, result


def rows_of_calls(
    items: Sequence[Item],
    call: Callable[[Item], Sequence[Any]],
    schema: pa.Schema,
    failed: Callable[[int, Exception], None],
) -> tuple[pa.Table, Index]:
    """The rows that the calls return, as a table, and of each row the number of its call.

    Only if a call raises or a row does not fit the schema is every call made again by itself.
    """

    def checked(item: Item) -> Sequence[Any]:
        rows = call(item)
        table_of(rows, schema)
        return rows

    try:
        results = [call(item) for item in items]
        table = table_of(chain.from_iterable(results), schema)
    except Exception:
        good = dict(one_by_one(items, checked, failed))
        results = [good.get(number, ()) for number in range(len(items))]
        table = table_of(chain.from_iterable(results), schema)
    return table, np.repeat(np.arange(len(results)), list(map(len, results)))
