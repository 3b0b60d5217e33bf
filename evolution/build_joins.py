"""Steps that bring several streams together, as a user writes them."""

from __future__ import annotations

from typing import Any

import headrace as hr
from evolution.build_steps import SIGN, Built
from evolution.spec import Step

_PAIR = ("id", "id_right", "0")


def joined(s: Step, sides: list[hr.Stream]) -> Built:
    named: dict[str, Any] = {"name": s.name, "was": s.was}
    on, near = list(s.keys), f"{s.length * 1000 + 500}ms"
    left, right = sides[:2]
    if s.kind in ("join", "outer"):
        found = left.join(right, on=on, within=near, how=s.how, **named)
        return found, _PAIR if s.how not in ("semi", "anti") else ("id", "-1", "0")
    if s.kind == "in_window":
        window = hr.tumbling(f"{s.length}s")
        found = left.join(right, on=on, window=window, how=s.how, **named)
        return found, ("id", "id_right", "unix_millis(window_start)")
    if s.kind == "cogroup":
        grouped = left.cogroup(right, _ids, on=on, window=hr.tumbling(f"{s.length}s"),
                               schema="n bigint, m bigint", **named)  # fmt: skip
        return grouped, ("unix_millis(window_start)", "n", "m")
    if s.kind == "latest":
        table = right.table(*s.keys, unbounded=True)
        return left.join(table, on=on, how=s.how, **named), _PAIR
    if s.kind == "tables":
        tables = [side.table(*s.keys, unbounded=True) for side in (left, right)]
        return tables[0].join(tables[1], how=s.how, **named), ("id", "id_right", SIGN)
    streams: dict[str, Any] = dict(zip("abc", sides, strict=False))
    found = hr.join_all(on=on, within=near, how=s.how, **named, **streams)
    return found, ("id_a", "id_b", "id_c" if len(sides) == 3 else "0")


def _ids(key: Any, lefts: list[Any], rights: list[Any]) -> dict[str, int]:
    return {"n": sum(row.id for row in lefts), "m": sum(row.id for row in rights)}
