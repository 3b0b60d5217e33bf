"""How fast the page is: `python -m tests.page.load`, on a machine that does nothing else.

Jobs are made up, behind the real interface, which runs in a process of its own. Times are the
browser's own, from the moment a page is asked for; the first time nothing of it is stored.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from statistics import median
from typing import Any

import psutil

import headrace as hr
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.server.values import Series
from tests.page.conftest import CHROMIUM, FLAGS
from tests.server.memory_service import FIGURES, MemoryService
from tests.server.rest_client import TOKENS

JOBS, STEPS, PAGES, TIMES, POINTS = 50, 40, 20, 9, 300
WATCHED = 20.0  # seconds
DRAWN = """([selector, count]) => new Promise(found => {
  const look = () => document.querySelectorAll(selector).length >= count
    ? found(performance.now()) : requestAnimationFrame(look);
  look();
})"""


class BusyService(MemoryService):
    """Many jobs that are always at another epoch, each of many steps."""

    def __init__(self) -> None:
        super().__init__(*(f"job-{n:02}" for n in range(JOBS)))
        self._plan = _job().explain().json
        self._figures = {**FIGURES, "steps": [
            {**FIGURES["steps"][0], "name": step["name"], "kind": step["kind"]}
            for step in self._plan["logical"]
        ]}  # fmt: skip
        for name in self.figures_now:
            self.become(name, State.RUNNING)

    def figures(self) -> dict[str, Any]:
        now = int(time.time() * 1000)
        found = {**self._figures, "time": now, "epoch": now // 1000, "rate_in": now % 1000}
        return dict.fromkeys(self.figures_now, found)

    def job(self, name: str) -> Any:
        return replace(super().job(name), figures=self.figures()[name])

    def plan(self, name: str) -> dict[str, Any]:
        return self._plan

    def series(self, name: str, **fields: Any) -> Series:
        now = int(time.time() * 1000)
        times = tuple(range(now - POINTS * 1000, now, 1000))
        names = fields.get("names") or ("rate_in",)
        return Series(times, {n: tuple(float(t // 1000 % 97) for t in times) for n in names})


def _job() -> hr.Job:
    job = hr.Job("steps")
    stream: Any = job.read(hr.rows([], "k string, n bigint"), name="in")
    for number in range((STEPS - 2) // 2):
        stream = stream.with_columns(n=f"n + {number}")
        stream = stream.where(f"n > {number}", name=f"where {number}")
    stream.write("collect:", name="out")
    return job


def _serve(ready: Connection) -> None:
    with serve(BusyService(), port=0, tokens=TOKENS) as rest:
        ready.send(rest.url)
        ready.recv()


def measure() -> None:
    from playwright.sync_api import sync_playwright

    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,))
    server.start()
    there.close()  # so that its end is noticed
    url = f"{here.recv()}/#token={TOKENS['operate']}"
    process = psutil.Process(server.pid)
    print(f"{JOBS} jobs of {STEPS} steps; load {os.getloadavg()[0]:.1f}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for what, hash, drawn in (
            ("the list", "", ["tr[data-row], tbody tr", JOBS]),
            ("a job with plots", "#/jobs/job-07", ["canvas", 1]),
            ("the graph", "#/jobs/job-07/graph", ["g[data-step]", STEPS - 2]),
        ):
            first, again = [], []
            for _ in range(TIMES):
                context = browser.new_context(viewport={"width": 1360, "height": 900})
                page = context.new_page()
                page.goto(url)
                first.append(page.evaluate(DRAWN, ["tbody tr", JOBS]))
                page.goto("about:blank")
                page.goto(url.partition("#")[0] + hash)
                again.append(page.evaluate(DRAWN, drawn))
                context.close()
            if not hash:
                print(f"the list, for the first time: {_ms(first)}")
            print(f"{what}, again: {_ms(again)}")
        before = process.memory_info().rss
        context = browser.new_context()
        pages = [context.new_page() for _ in range(PAGES)]
        for page in pages:
            page.goto(url)
            page.evaluate(DRAWN, ["tbody tr", JOBS])
        used, began = _cpu(process), time.monotonic()
        pages[0].wait_for_timeout(WATCHED * 1000)
        share = (_cpu(process) - used) / (time.monotonic() - began)
        grown = (process.memory_info().rss - before) / 1e6
        print(f"{PAGES} open pages: the server has {grown:.0f} MB more, {share:.0%} of a core")
        browser.close()
    here.send(None)
    server.join()


def _ms(took: list[float]) -> str:
    return f"{median(took):.0f} ms (worst {max(took):.0f})"


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    measure()
