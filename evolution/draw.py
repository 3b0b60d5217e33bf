"""Programs, drawn; how they change is in `changes.py`."""

from __future__ import annotations

import random

from evolution.kinds import AGGREGATES, KINDS, STATEFUL, hows
from evolution.places import ALL
from evolution.spec import KEYS, WHERES, Branch, Input, Output, Step, Version

OUTPUTS = ("log", "files", "collect", "log", "files", "collect", "console")


class Drawer:
    """Draws from one seed; `fresh` makes names that nobody has had."""

    def __init__(self, random: random.Random) -> None:
        self.random, self._made = random, 0
        self.lives: dict[str, int] = {}  # by place: how often it is read from its beginning
        self.outputs = list[Output]()  # all that were ever drawn

    def fresh(self, letter: str) -> str:
        self._made += 1
        return f"{letter}{self._made}"

    def first(self) -> Version:
        places = self.random.sample(ALL, self.random.choice((1, 2, 2, 3)))
        inputs = tuple(self.input(*p) for p in places)
        count = self.random.choice((1, 2, 2, 3))
        branches = tuple(self.branch(inputs) for _ in range(count))
        return Version(inputs, branches, narrow=self.random.random() < 0.8)

    def input(self, kind: str, place: str) -> Input:
        self.lives[place] = self.lives.get(place, 0) + 1
        return Input(self.fresh("i"), kind, place, life=self.lives[place])

    def branch(self, inputs: tuple[Input, ...]) -> Branch:
        return Branch(self.fresh("L"), self.step(inputs), self.output())

    def step(self, inputs: tuple[Input, ...]) -> Step:
        r = self.random
        kind = r.choice([k for k in (*KINDS, *STATEFUL) if KINDS[k].sides <= len(inputs)])
        most = min(KINDS[kind].most, len(inputs))
        chosen = tuple(i.name for i in r.sample(inputs, r.randint(KINDS[kind].sides, most)))
        name = self.fresh("s") if KINDS[kind].state and r.random() < 0.7 else None
        return Step(kind, name, chosen, r.choice(KEYS), r.choice("xy"), r.choice((3, 5)),
                    r.choice(WHERES), aggs=self.aggs(), how=r.choice(hows(kind)),
                    more=r.random() < 0.5, late=r.choice((0, 1, 2)))  # fmt: skip

    def aggs(self) -> tuple[str, ...]:
        return tuple(self.random.sample(AGGREGATES, self.random.choice((1, 2, 2))))

    def output(self) -> Output:
        kind, name = self.random.choice(OUTPUTS), self.fresh("o")
        format = self.random.choice(("parquet", "json")) if kind == "files" else ""
        place = {"collect": name, "console": "console"}.get(kind, f"p{name}")
        made = Output(name, kind, place, format)
        self.outputs.append(made)
        return made
