"""How fast the page is: `python -m tests.page.load`, on a machine that does nothing else.

With `--minutes 5` instead: what a page that stays open needs, after each minute.
Jobs are made up, behind the real interface, which runs in a process of its own. Times are the
browser's own, from the moment a page is asked for; the first time nothing of it is stored.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
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
VIEWS: tuple[tuple[str, str, list[Any]], ...] = (
    ("the list", "", ["tbody tr", JOBS]),
    ("a job with plots", "#/jobs/job-07", ["canvas", 1]),
    ("the graph", "#/jobs/job-07/graph", ["g[data-step]", STEPS - 2]),
)
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


@contextmanager
def _measured() -> Iterator[tuple[str, psutil.Process, Any]]:
    """The address of a server, its process, and a browser."""
    from playwright.sync_api import sync_playwright

    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,))
    server.start()
    there.close()  # so that its end is noticed
    url = f"{here.recv()}/#token={TOKENS['operate']}"
    print(f"{JOBS} jobs of {STEPS} steps; load {os.getloadavg()[0]:.1f}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield url, psutil.Process(server.pid), browser
        browser.close()
    here.send(None)
    server.join()


def measure_memory(minutes: int) -> None:
    """What is in use once the garbage has gone, of pages that nobody touches."""
    with _measured() as (url, _, browser):
        opened = []
        for what, hash, drawn in VIEWS:
            page = browser.new_context().new_page()
            page.goto(url)
            page.evaluate(DRAWN, ["tbody tr", JOBS])
            page.evaluate("hash => { location.hash = hash }", hash)
            page.evaluate(DRAWN, drawn)
            session = page.context.new_cdp_session(page)
            session.send("Performance.enable")
            opened.append((what, page, session))
        for minute in range(minutes + 1):
            for what, _, session in opened:
                session.send("HeapProfiler.collectGarbage")
                found = session.send("Performance.getMetrics")["metrics"]
                now = {metric["name"]: metric["value"] for metric in found}
                heap, nodes = now["JSHeapUsedSize"] / 1e6, now["Nodes"]
                listeners = now["JSEventListeners"]
                print(
                    f"{what}, after {minute} min: {heap:.2f} MB of heap, "
                    f"{nodes:.0f} nodes, {listeners:.0f} listeners",
                    flush=True,
                )
            if minute < minutes:
                opened[0][1].wait_for_timeout(60_000)


def measure() -> None:
    with _measured() as (url, process, browser):
        for what, hash, drawn in VIEWS:
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


def _ms(took: list[float]) -> str:
    return f"{median(took):.0f} ms (worst {max(took):.0f})"


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    asked = argparse.ArgumentParser()
    asked.add_argument("--minutes", type=int, default=0, help="how long pages stay open")
    minutes = asked.parse_args().minutes
    measure_memory(minutes) if minutes else measure()
