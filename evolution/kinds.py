"""The kinds of steps that are drawn, and what is true of each by the guide."""

from __future__ import annotations

from dataclasses import dataclass

ROWS, TIME, NET = "rows", "time", "net"  # when results come: with a row; with time; as changes
REFUSED, OPEN = "refused", "open"
SHORTER = "shorter"  # a longer one is refused
NARROWER = "narrower"  # the same, but that a semi join is refused either
ANY_LENGTH = "any"
HOWS = ("inner", "left", "full")


@dataclass(frozen=True, slots=True)
class Kind:
    sides: int = 1  # inputs, at least
    most: int = 1  # and at most
    state: bool = True
    timed: bool = False  # event times are part of its state
    order: bool = True  # what it gives depends on the order in which rows of a key come
    emits: str = ROWS
    column: bool = False  # it goes by `column`
    aggs: bool = False  # it has named aggregates
    stores_rows: bool = False  # of which they are computed
    length: str = ""  # what another length is; empty if it has none
    waits: bool = False  # windows may wait for late rows
    how: str = ""  # what another `how` is; empty if it has none


def _window(**more: str | bool) -> Kind:
    said = {"timed": True, "order": False, "emits": TIME, "length": REFUSED, **more}
    return Kind(**said)  # type: ignore[arg-type]


def _join(most: int = 2, **more: str | bool) -> Kind:
    said = {"timed": True, "order": False, "emits": TIME, "length": OPEN, "how": OPEN, **more}
    return Kind(2, most, **said)  # type: ignore[arg-type]


_PLAIN = Kind(state=False, order=False)

KINDS: dict[str, Kind] = {
    # without state
    "none": _PLAIN, "explode": _PLAIN, "async": _PLAIN, "share": _PLAIN, "transform": _PLAIN,
    "lookup": _PLAIN, "python": _PLAIN, "union": Kind(2, 2, state=False, order=False),
    # running
    "agg": Kind(aggs=True), "fold": Kind(), "reduce": Kind(), "process": Kind(),
    "mapped": Kind(), "updated": Kind(order=False, emits=TIME), "connect": Kind(2, 2),
    "timers": Kind(timed=True, order=False, emits=TIME, length=OPEN),
    "ordered": Kind(timed=True, emits=TIME, length=OPEN),
    "iterate": Kind(timed=True), "hops": Kind(timed=True, order=False, emits=TIME),
    # row by row, and boards
    "changes": Kind(timed=True, column=True), "dedup": Kind(timed=True, length=SHORTER),
    "throttle": Kind(timed=True, length=OPEN), "seen": Kind(timed=True, length=OPEN),
    "limit": Kind(timed=True, length=ANY_LENGTH),
    "top": Kind(timed=True, order=False, emits=NET, column=True),
    "components": Kind(timed=True, order=False, emits=NET),
    "degrees": Kind(timed=True, order=False, emits=NET),
    "match": Kind(timed=True, order=False, emits=TIME, length=OPEN),
    "batch": Kind(timed=True, emits=TIME, length=OPEN),
    "sample": Kind(timed=True, order=False, emits=TIME, length=REFUSED),
    "suppress": Kind(timed=True, order=False, emits=TIME, length=REFUSED),
    "learned": Kind(timed=True, emits=TIME), "drifts": Kind(timed=True, emits=TIME),
    # windows of time
    "tumbling": _window(aggs=True), "sliding": _window(aggs=True),
    "session": _window(aggs=True, length=SHORTER),
    "cumulating": _window(aggs=True), "patient": _window(aggs=True, waits=True),
    "hopping": _window(aggs=True, waits=True), "folded": _window(),
    "reduced": _window(order=True), "merged": _window(),
    "everything": _window(aggs=True, length=""),
    # windows of rows
    "rows": _window(aggs=True, order=True, length=""),
    "last_rows": _window(aggs=True, stores_rows=True, order=True, length=""),
    "evicted": _window(order=True, length=""),
    "ticks": _window(aggs=True, stores_rows=True, order=True),
    "lately": _window(aggs=True, stores_rows=True, order=True),
    "delta": _window(aggs=True, order=True, length="", column=True),
    "until": _window(aggs=True, order=True, length=""),
    # joins
    "join": Kind(2, 2, timed=True, order=False, length=SHORTER),
    "outer": _join(length=NARROWER), "join_all": _join(3, how=REFUSED),
    "in_window": _join(length=REFUSED),
    "cogroup": _join(length=REFUSED, how=""), "latest": _join(length=""),
    "tables": _join(emits=NET, length="", how=REFUSED),
    "versions": Kind(timed=True, order=False, emits=TIME),
}  # fmt: skip

STATEFUL = tuple(name for name, kind in KINDS.items() if kind.state)
PROCESS = ("process", "mapped", "updated", "connect", "timers")  # their state is declared values
VALUED = ("process", "fold")  # with values, or a record, that may change
JOINS = ("join", "outer", "join_all", "in_window", "cogroup", "latest", "tables")
BY_ORDER = ("first", "last", "max_by", "min_by", "collect")  # of rows by event time
SKETCHES = ("approx_count_distinct", "approx_quantile")  # exact, of so few values
AGGREGATES = ("sum", "count", "min", "max", "mean", "count_distinct", "percentile", *BY_ORDER,
              *SKETCHES)  # fmt: skip


SINCE = ("restart", "beginning")  # from when a new aggregate counts


def hows(kind: str) -> tuple[str, ...]:
    """What `how` may be."""
    if not KINDS[kind].how:
        return ("inner",)
    return ("left", "full", "semi", "anti") if kind == "outer" else HOWS
