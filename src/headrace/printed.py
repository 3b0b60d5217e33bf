"""Values and tables as text for people: one line each, whatever is in them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headrace import notebook
from headrace.ddl import ddl_type

WIDEST = 60  # characters of a value in a table


def text_of(value: object) -> str:
    """A value on one line, without characters that would change the terminal."""
    if value is None:
        return "null"
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).replace("+00:00", "Z")
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def spans(numbers: Iterable[int]) -> str:
    """Numbers in words: 3 to 5, 7."""
    found = list[list[int]]()
    for number in sorted({*numbers}):
        if found and found[-1][1] == number - 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in found)


def counted(number: int, what: str) -> str:
    """So many of something: 1 row, 2 rows."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def texts_of(rows: pa.Table) -> list[tuple[str, ...]]:
    """The values of each row as text."""
    columns = [[text_of(v) for v in column.to_pylist()] for column in rows.columns]
    return list(zip(*columns, strict=True))


def is_number(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    )


def cut(text: str) -> str:
    return text if len(text) <= WIDEST else text[: WIDEST - 1] + "…"


def heads_of(schema: pa.Schema) -> list[tuple[str, str]]:
    """Of each column its name and its type, as a schema would be written."""
    return [(text_of(f.name), ddl_type(f.type)) for f in schema]


def text_table(rows: pa.Table) -> str:
    """Columns under their names and types, numbers to the right."""
    names, types = zip(*heads_of(rows.schema), strict=True) if len(rows.schema) else ((), ())
    body = [tuple(map(cut, row)) for row in texts_of(rows)]
    widths = [max(map(len, column)) for column in zip(names, types, *body, strict=True)]
    rule = ["-" * width for width in widths]
    right = [is_number(f.type) for f in rows.schema]
    lines = [
        "  ".join(
            text.rjust(width) if number else text.ljust(width)
            for text, width, number in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in (names, types, rule, *body)
    ]
    return "\n".join(lines)


def html_table(rows: pa.Table, caption: str) -> str:
    """The same for notebooks, and a line below it."""
    right = [is_number(f.type) for f in rows.schema]
    cells = [tuple(map(cut, row)) for row in texts_of(rows)]
    return notebook.grid(heads_of(rows.schema), cells, right) + notebook.note(caption)


def columns_html(schema: pa.Schema) -> str:
    """The columns of a stream, for notebooks."""
    return notebook.grid([("column",), ("type",)], heads_of(schema))
