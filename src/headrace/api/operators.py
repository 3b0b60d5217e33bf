"""The small operators as methods, the same on a stream and on a keyed one.

Thin: each says where in the program it stands, and hands on what it was given. On a stream
without a key all rows count as one key, and are brought together in one task.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from headrace.api import small_operators
from headrace.api.step_builder import Adding
from headrace.clock import Duration
from headrace.plan.draft import Draft
from headrace.plan.nodes import Edge

if TYPE_CHECKING:
    from headrace.api import stream


class Operators:
    """What a stream can do beyond expressions, functions and windows."""

    _draft: Draft
    _edge: Edge
    _keys: tuple[str, ...] = ()

    def deduplicate(
        self,
        *columns: str,
        within: Duration | None = None,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult:
        """Leave out a row if one of the same key and columns went on `within` the time of it.

        Without key and columns, whole rows are compared. Without `within` it is one that ever
        went on, and all that was seen is kept: say unbounded=True. Rows before the watermark
        are `.late`.
        """
        at = Adding(self._draft, self._edge, name, was)
        return small_operators.deduplicate(at, self._keys, columns, within, unbounded)

    def changes_only(
        self,
        *columns: str,
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult:
        """Leave out a row if these columns are as in the row of its key before.

        Without columns, all that are not part of the key count.
        """
        at = Adding(self._draft, self._edge, name, was)
        return small_operators.changes_only(at, self._keys, columns, unbounded)

    def throttle(
        self,
        rows: int,
        per: Duration | None = None,
        *,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult:
        """At most so many rows of a key in each `per` of event time.

        The rest is left out, or goes on as `.side("dropped")`.
        """
        at = Adding(self._draft, self._edge, name, was)
        return small_operators.throttle(at, self._keys, rows, per)

    def top(
        self,
        rows: int,
        *,
        by: str,
        largest: bool = True,
        each: str | Sequence[str] = (),
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult:
        """The best rows of each key so far, as changes: columns `rank` and `change`.

        After each batch, "-" tells what has left a rank and "+" what has taken it. `each` names
        columns that say what a row is about: a newer row about it replaces the older.
        """
        at = Adding(self._draft, self._edge, name, was)
        return small_operators.top(at, self._keys, rows, by, largest, each, unbounded)

    def batch(
        self,
        rows: int,
        within: Duration | None = None,
        *,
        time: str | None = None,
        into: str = "rows",
        unbounded: bool = False,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult:
        """Pack rows of a key into lists of so many, or of those that came `within` a time.

        The result has the key and the column `into`, a list of records. `time` is "event" or
        "processing"; without `within` a list that is not full waits until the input ends.
        """
        at = Adding(self._draft, self._edge, name, was)
        return small_operators.batch(at, self._keys, rows, within, time, into, unbounded)

    @overload
    def sample(
        self, size: float, *, seed: int = 0, name: str | None = None, was: str | None = None
    ) -> stream.Stream: ...

    @overload
    def sample(
        self,
        size: int,
        per: Duration,
        *,
        seed: int = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.TimedResult: ...

    def sample(
        self,
        size: float,
        per: Duration | None = None,
        *,
        seed: int = 0,
        name: str | None = None,
        was: str | None = None,
    ) -> stream.Stream:
        """A share of the rows (`sample(0.01)`), or so many of each key (`sample(10, per="1m")`).

        Which rows are taken depends on where they came from and on `seed`, on nothing else.
        """
        at = Adding(self._draft, self._edge, name, was)
        return small_operators.sample(at, self._keys, size, per, seed)
