"""What `Everything` should do, in plain Python: one dict per key, one row after the other."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from headrace.clock import MAX_TIME

TTL = {"fresh": (5_000, 0), "recs": (8_000, 0), "clocked": (3_000, 1)}  # 1: by the clock


class Model:
    def __init__(self) -> None:
        self.keys: dict[str, dict[str, Any]] = {}
        self.counts: Counter[str] = Counter()

    def step(
        self, rows: list[Any], before: int, after: int, clock: int, newest: int
    ) -> tuple[Any, Any, int]:
        """Rows given, rows aside, and how many calls failed."""
        self.out, self.aside = [], []  # type: ignore[var-annotated]
        limit = (after, math.inf if after >= MAX_TIME else clock)
        self.span, self.clock, self.newest, self.limit = (before, after), clock, newest, limit
        self.marks: dict[str, int] = {}  # the watermark that a key's calls see
        fails = [r for r in rows if r.op in ("fail", "badly")]
        for r in sorted(rows, key=lambda r: (r.time, r.split, r.offset)):
            k = self.keys.setdefault(r.key, {"timers": set(), **new()})
            self.fire(r.key, r.time)
            if r in fails:
                continue
            self.call(k, r.op, max(before, r.time), clock)
            if self.row(k, r, clock):
                mark = self.marks.get(r.key, before)
                self.out.append((r.key, r.op, f"{said(k)} {r.time} {mark} {clock}"))
        for key in self.keys:
            self.fire(key, None)
        return self.out, self.aside, len(fails)

    def fire(self, key: str, row: int | None) -> None:
        """The timers of a key that are due: before a row those by event time, else all."""
        (before, after), k = self.span, self.keys[key]
        while due := sorted(
            t for t in k["timers"]
            if t[0] <= self.limit[t[1]] and (row is None or (t[1] == 0 and t[0] < row))
        ):  # fmt: skip
            k["timers"].remove(due[0])
            at, by_clock = due[0]
            self.call(k, "timers", before if by_clock else max(before, at), self.clock)
            k["n"] += 1
            self.aside.append((key, k["n"]))
            goes_on = after < MAX_TIME or (not by_clock and at <= self.newest)
            k["timers"] |= {(at + 1_500, 0)} if k["n"] % 3 == 0 and goes_on else set()
            k["timers"] -= {(at + 1_000, 0)} if k["n"] % 4 == 0 else set()
            mark = after if row is None else max(self.marks.get(key, before), at)
            self.marks[key] = mark
            told = f"{at} {bool(by_clock)} {said(k)} {at} {mark} {self.clock}"
            self.out.append((key, "timer", told))

    def call(self, k: Any, what: str, now: int, clock: int) -> None:
        self.counts[what] += 1
        self.now = (now, clock)
        over = [n for n, (_, at) in k["lived"].items() if at + TTL[n][0] <= self.now[TTL[n][1]]]
        k["lived"] = {n: v for n, v in k["lived"].items() if n not in over}

    def write(self, k: Any, name: str, value: Any) -> None:
        known = k["lived"].get(name, (None, -math.inf))[1]
        k["lived"][name] = (value, max(known, self.now[TTL[name][1]]))

    def row(self, k: Any, r: Any, clock: int) -> bool:
        """Apply one; whether it tells the whole state."""
        timers = {"timer": (r.time + r.arg * 500, 0), "clock_timer": (clock + r.arg * 500, 1),
                  "cancel": (r.time - r.time % 500 + r.arg * 500, 0),
                  "cancel_clock": (clock + r.arg * 500, 1)}  # fmt: skip
        if r.op in timers:
            (k["timers"].discard if "cancel" in r.op else k["timers"].add)(timers[r.op])
        elif r.op == "add":
            k.update(n=k["n"] + r.arg, seen=[*k["seen"], r.arg], every=[*k["every"], r.arg])
        elif r.op in ("fresh", "clocked"):
            self.write(k, r.op, r.arg)
        elif r.op in ("recs", "peek"):
            recs = k["lived"].get("recs", ([], 0))[0] + [r.arg] * (r.op == "recs")
            self.write(k, "recs", recs)
            self.out.append((r.key, r.op, str(recs if r.op == "recs" else len(recs))))
        elif r.op == "aside":
            self.aside.append((r.key, r.arg))
        elif r.op == "forget":
            k.update(n=0, seen=[])
            k["lived"].pop("fresh", None)
        elif r.op == "wipe":
            k.update(new())
        return r.op not in ("recs", "peek", "aside", "wipe")


def new() -> dict[str, Any]:
    return {"n": 0, "seen": [], "every": [], "lived": {}}


def said(k: Any) -> str:
    by: dict[str, int] = {}
    for arg in k["every"]:
        by[str(arg % 3)] = by.get(str(arg % 3), 0) + arg
    every = k["every"]
    totals = [sum(every), max(every) - min(every)] if every else [None, None]
    lived = [k["lived"].get(n, (-1,))[0] for n in ("fresh", "clocked")]
    return str([k["n"], k["seen"], sorted(by.items()), every[-2:], *totals, *lived])
