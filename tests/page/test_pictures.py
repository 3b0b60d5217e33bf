"""The pictures of docs/guide/page.md, taken from the real page.

    PAGE_PICTURES=docs/pictures python -m pytest tests/page/test_pictures.py

Without it the views are opened all the same, and nothing is written.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.page.conftest import PATIENCE

expect.set_options(timeout=PATIENCE)
PICTURES = [
    ("jobs", (), {}),
    ("overview", ("jobs", "shop"), {}),
    ("graph", ("jobs", "shop", "graph"), {"color_scheme": "dark"}),
    ("dead", ("jobs", "shop", "dead"), {}),
    ("narrow", ("jobs", "shop"), {"viewport": {"width": 390, "height": 780}}),
]


@pytest.mark.parametrize(("name", "parts", "options"), PICTURES, ids=[p[0] for p in PICTURES])
def test_picture(
    open_page: Any, shots: Path | None, name: str, parts: tuple[str, ...], options: dict[str, Any]
) -> None:
    opened = open_page(**{"viewport": {"width": 1280, "height": 800}, **options})
    place = str(opened.site.world.place)

    def elsewhere(route: Any) -> None:
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace(place, "/srv/streams"))

    opened.page.route(re.compile("/api/v1/"), elsewhere)  # a picture has no path of a test
    page = opened.go(*parts)
    page.locator("main :is(table, .graph svg, canvas)").first.wait_for()
    if name == "dead":
        page.locator(".tab-panel .panel").nth(1).get_by_role("button", name="#").first.click()
        page.locator(".letter").wait_for()
    page.wait_for_timeout(2000)  # figures, and the past of sparklines
    if shots is not None:
        page.screenshot(path=shots / f"page-{name}.png")
    page.unroute_all(behavior="wait")
