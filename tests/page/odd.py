"""A server of made-up jobs, for what no real one says: odd values, many jobs, long plans."""

from __future__ import annotations

import time
from typing import Any

import headrace as hr
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.server.values import Event, LogPart, Series
from tests.server.memory_service import FIGURES, STARTED, MemoryService
from tests.server.rest_client import TOKENS

MARKUP = "<img src=x onerror=\"document.title='owned'\">'&"
RIGHT_TO_LEFT = "\u202e\u05de\u05db\u05d9\u05e8\u05d4\u202c \u0645\u0628\u064a"
LONG = "x" * 10_000


def replaced(value: Any, number: Any, text: str) -> Any:
    """The same JSON, with every number and every text another one; names of fields stay."""
    if isinstance(value, dict):
        return {key: replaced(inner, number, text) for key, inner in value.items()}
    if isinstance(value, list):
        return [replaced(inner, number, text) for inner in value]
    if isinstance(value, str):
        return text
    return value if value is None or isinstance(value, bool) else number


def straight(steps: int) -> dict[str, Any]:
    """The plan of a job that is one line."""
    job = hr.Job("line")
    stream: Any = job.read(hr.rows([], "k string, n bigint"), name="in")
    for number in range(steps - 2):
        stream = stream.where(f"n > {number}", name=f"where {number}")
    stream.write("collect:", name="out")
    return dict(job.explain().json)


class OddService(MemoryService):
    """Whatever it says of a job is one text and one number, and `plans`."""

    def __init__(self, *names: str) -> None:
        super().__init__(*names)
        self.plans: dict[str, dict[str, Any]] = {}
        self.text, self.number = "plain", 1.0
        for name in names:
            self.become(name, State.RUNNING)

    def say(self, number: Any, text: str) -> None:
        self.number, self.text = number, text
        for name in self.figures_now:
            self.figures_now[name] = replaced(FIGURES, number, text)
            self.become(name, State.RUNNING, text)
            self._set(name, rate_in=number, lag_rows=number, lag_seconds=number, late=number,
                      watermark=number, watermark_delay=number, latency_p95=number, dead=number,
                      capacity=number, committed=number, since=number, program=text)  # fmt: skip

    def plan(self, name: str) -> dict[str, Any]:
        return self.plans.get(name) or straight(4)

    def series(self, name: str, **fields: Any) -> Series:
        now = int(time.time() * 1000)
        there = (*range(now - 60_000, now - 40_000, 3000), *range(now - 20_000, now, 3000))
        times = tuple(time for time in there if fields["since"] <= time)
        return Series(times, {n: (self.number,) * len(times) for n in fields["names"]})

    def events(self, name: str | None = None, *, after: int = 0, limit: int = 200) -> list[Event]:
        event = Event(1, int(time.time() * 1000), name or "job", "said", self.text, self.text)
        return [] if after else [event]

    def logs(self, name: str, **fields: Any) -> LogPart:
        return LogPart(1, (1,), () if fields.get("after") else (self.text,), 1)

    def why(self, name: str) -> dict[str, Any]:
        reason = dict.fromkeys(("where", "text", "hint"), self.text)
        return {"job": name, "reasons": [reason]}

    def state(self, name: str) -> dict[str, Any]:
        return {"steps": [{"name": self.text, "kind": self.text, "key": self.text,
                           "rows": self.number, "bytes": self.number}]}  # fmt: skip

    def query_state(
        self, name: str, step: str, sql: str | None, limit: int = 100
    ) -> dict[str, Any]:
        row = [self.number, self.text, [self.number], {self.text: None}, None]
        return {"columns": [sql, self.text, "list", "struct", ""], "rows": [row], "epoch": 7}

    def dead(self, name: str, **fields: Any) -> dict[str, Any]:
        group = {"step": self.text, "error": self.text, "count": 2, "first": None, "last": 1}
        return {"total": 2, "groups": [group], "letters": [self._letter(2), self._letter(1)]}

    def dead_letter(self, name: str, number: int) -> dict[str, Any]:
        record = {self.text: self.number, "none": None}
        return {**self._letter(number), "record": record, "traceback": self.text}

    def _letter(self, number: int) -> dict[str, Any]:
        return {"number": number, "step": self.text, "time": STARTED, "error": self.text,
                "place": self.text}  # fmt: skip

    def savepoints(self, name: str) -> list[dict[str, Any]]:
        return [{"savepoint": self.text, "name": self.text, "epoch": self.number, "time": STARTED}]


class OddSite:
    """A server of such a service, as the fixtures of the page want it."""

    def __init__(self, service: OddService) -> None:
        self.service, self.tokens = service, TOKENS
        self.http = serve(service, port=0, tokens=TOKENS)

    @property
    def url(self) -> str:
        return self.http.url

    def address(self, role: str = "operate") -> str:
        return f"{self.url}/#token={self.tokens[role]}"

    def start_again(self) -> None:
        port = int(self.url.rpartition(":")[2])
        self.http.close()
        self.http = serve(self.service, port=port, tokens=TOKENS)
