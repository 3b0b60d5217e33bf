"""Notebooks: the one door to IPython, and HTML for what is shown there.

IPython need not be installed: where it is not loaded there is no notebook, so nothing here
imports it. All text that becomes HTML is escaped here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

_LEFT = "text-align: left; white-space: pre-wrap"
_RIGHT = "text-align: right"


def _shell() -> Any:
    """The shell of IPython in which this program runs, if it does."""
    ipython = sys.modules.get("IPython")
    current = getattr(ipython, "get_ipython", None)  # missing while it is being imported
    return current() if current is not None else None


def is_live() -> bool:
    """Whether this program runs in a notebook, or in another client of a kernel."""
    return getattr(_shell(), "kernel", None) is not None


def cell_number(file: str) -> int | None:
    """The number of the cell that Python knows as `file`, as in "In [3]"."""
    cells = getattr(getattr(_shell(), "compile", None), "_filename_map", None) or {}
    number = cells.get(file)
    return number if isinstance(number, int) else None


def show(html: str, text: str) -> None:
    """Show something below the cell: the HTML, or the text where there is no HTML."""
    if _shell() is None:
        print(text)
    else:
        from IPython.display import display

        display({"text/html": html, "text/plain": text}, raw=True)  # type: ignore[no-untyped-call]


class Card:
    """Something below a cell that is replaced in place, and can be shown again elsewhere."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._cell: int | None = None
        self._bundle: dict[str, str] = {}

    def draw(self, html: str, text: str) -> None:
        self._bundle = {"text/html": html, "text/plain": text}
        if self._handle is None:
            self._cell = _cell_now()
            self._handle = _display(self._bundle, True)
        else:
            self._handle.update(self._bundle, raw=True)

    def show_again(self) -> None:
        """Show it below this cell, too, unless that is where it was shown first."""
        if self._handle is not None and self._cell != _cell_now():
            self._cell = _cell_now()
            _display(self._bundle, self._handle.display_id)


def _cell_now() -> int | None:
    return getattr(_shell(), "execution_count", None)


def _display(bundle: dict[str, str], display_id: bool | str) -> Any:
    from IPython.display import display

    return display(bundle, raw=True, display_id=display_id)  # type: ignore[no-untyped-call]


# HTML.


def heading(text: str, more: str = "") -> str:
    rest = f" <span style='opacity: 0.7'>{escape(more)}</span>" if more else ""
    return f"<div><b>{escape(text)}</b>{rest}</div>"


def note(text: str) -> str:
    return f"<div style='opacity: 0.7'>{escape(text)}</div>"


def preformatted(text: str) -> str:
    return f"<pre style='margin: 0.3em 0; white-space: pre-wrap'>{escape(text)}</pre>"


def grid(
    heads: Sequence[Sequence[str]],
    rows: Iterable[Sequence[str]],
    right: Sequence[bool] = (),
) -> str:
    """A table; each head is a name and what is written smaller below it."""
    styles = [_RIGHT if i < len(right) and right[i] else _LEFT for i in range(len(heads))]
    top = "".join(
        f"<th style='{style}'>{_head(head)}</th>" for head, style in zip(heads, styles, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f"<td style='{style}'>{escape(text)}</td>"
            for text, style in zip(row, styles, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"


def _head(words: Sequence[str]) -> str:
    name, *more = words
    small = "".join(f"<br><small style='opacity: 0.7'>{escape(m)}</small>" for m in more)
    return escape(name) + small
