"""A look at a stream or a table: its first rows, computed now.

What computes them is connected by the package (`headrace/__init__.py`): nothing here runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pyarrow as pa

from headrace import notebook
from headrace.api.handles import Handle
from headrace.errors import Site, call_site, refusal
from headrace.plan.part import Part, part_for
from headrace.printed import html_table, text_table

Look = Callable[[Part, int], tuple[pa.Table, str]]
_connected: list[Look] = []


def connect(look: Look) -> None:
    """From now on, `look` computes the rows of a part of a program."""
    _connected[:] = [look]


class Looking(Handle):
    """Methods that show rows of a stream, or the rows of a table."""

    def head(self, n: int = 20, *, quiet: bool = False) -> pa.Table:
        """The first `n` rows of this stream, computed now from what the inputs hold.

        Leaves no trace: the job's folder, its outputs and its progress stay as they are. Reads
        only as much as it needs; once all is read, windows are closed. Of a table, all is read:
        these are the first of its rows, by key, as they are then. How the rows came about is
        said on standard error, unless `quiet`.
        """
        rows, words = self._look(n, "head")
        if not quiet:
            print(words, file=sys.stderr)
        return rows

    def show(self, n: int = 20) -> None:
        """Print the first `n` rows of this stream, or of this table; see `head`."""
        rows, words = self._look(n, "show")
        text = f"{text_table(rows)}\n\n{words}"
        if notebook.is_live():
            notebook.show(html_table(rows, words), text)
        else:
            print(text)

    def _look(self, n: int, method: str) -> tuple[pa.Table, str]:
        if not isinstance(n, int) or isinstance(n, bool) or n < 1:
            raise refusal(
                "HR-STREAM-013",
                f"{method} takes {n!r} rows",
                "Choose a whole number of rows above zero.",
            )
        return _connected[0](self._part(call_site()), n)

    def _part(self, site: Site | None) -> Part:
        """The part of the program that is looked at."""
        return part_for(self._draft, self._edge, site)
