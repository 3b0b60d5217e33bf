"""One server, three jobs and one browser for all tests of the page.

Chromium and Playwright are needed: without them these tests are skipped, and say so.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.page.site import Site
from tests.server.forking import Command, forked

pytest.importorskip("playwright", reason="the tests of the page need Playwright")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--font-render-hinting=none",
]  # fmt: skip
PATIENCE = 45_000  # ms: a machine may be busy


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if Path(item.fspath).parent == Path(__file__).parent]
    if CHROMIUM is None:
        for item in here:
            item.add_marker(pytest.mark.skip(reason="the tests of the page need chromium"))


@pytest.fixture(scope="package")
def command(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with forked(tmp_path_factory.mktemp("fork")) as made:
        yield made


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory, command: Command) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("site"), command)
    made.open()
    try:
        service = made.world.service
        for file in ("shop.py", "hostile.py"):
            service.submit(made.program(file))
        service.submit(made.program("strict.py"), activate=False)
        for job in ("shop", "hostile"):
            made.world.until(lambda name=job: made.world.epoch(name) > 3, f"{job} commits")
        yield made
    finally:
        made.end()


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def until(page: Any, expression: str) -> None:
    """Waits until an expression holds. Playwright's own way evaluates texts in the page, which its
    Content-Security-Policy forbids."""
    for _ in range(PATIENCE // 100):
        if page.evaluate(expression):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"not within {PATIENCE} ms: {expression}")


class Opened:
    """A page that is signed in, and what its console has said."""

    def __init__(self, site: Site, browser: Any, role: str, options: dict[str, Any]) -> None:
        self.site = site
        self.context = browser.new_context(
            **{"viewport": {"width": 1360, "height": 900}, "timezone_id": "UTC", **options}
        )
        self.context.set_default_timeout(PATIENCE)
        self.page = self.context.new_page()
        self.said: list[str] = []
        self.page.on("console", lambda m: self.said.append(m.text) if m.type == "error" else None)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("response", self._answered)
        self.page.goto(site.address(role))
        self.page.get_by_role("heading", name="Jobs").wait_for()

    def _answered(self, response: Any) -> None:
        """Of the page itself every file is there; of jobs something may be refused."""
        if response.status >= 400 and "/api/" not in response.url:
            self.said.append(f"{response.status} for {response.url}")

    def go(self, *parts: str) -> Any:
        """Shows a view, as its link would."""
        from urllib.parse import quote

        hash = "#/" + "/".join(quote(part, safe="") for part in parts)
        self.page.evaluate("hash => { location.hash = hash }", hash)
        return self.page

    def complaints(self) -> list[str]:
        """What the console said; that the server was away, or refused something, is no error of
        the page."""
        expected = (
            "Failed to load resource: net::ERR_",
            "Failed to load resource: the server responded with a status of 4",
        )
        return [said for said in self.said if not said.startswith(expected)]


@pytest.fixture
def open_page(site: Site, browser: Any) -> Iterator[Any]:
    """Opens a signed-in page; at the end its console must have been silent."""
    opened: list[Opened] = []

    def open(role: str = "operate", **options: Any) -> Opened:
        opened.append(Opened(site, browser, role, options))
        return opened[-1]

    yield open
    complaints = [c for one in opened for c in one.complaints()]
    for one in opened:
        one.context.close()
    assert not complaints, complaints


@pytest.fixture
def shots() -> Path | None:
    """Where screenshots for the documentation go; None: none are wanted."""
    wanted = os.environ.get("PAGE_PICTURES")
    return Path(wanted) if wanted else None
