"""The documentation hangs together: links lead somewhere, every page can be found.

Checks files and headings in this repository only; addresses on the web are not visited.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def links(text: str) -> Iterator[str]:
    """Link targets inside the repository, outside code blocks."""
    for target in LINK.findall(FENCE.sub("", text)):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(text: str) -> set[str]:
    """Headings as the anchors that GitHub makes of them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


def broken(page: Path, text: str) -> list[str]:
    return [target for target in links(text) if not leads_somewhere(page, target)]


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return False
    return not anchor or anchor in anchors(file.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(page):
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_every_page_can_be_reached_from_the_readme():
    seen, queue = set(), [ROOT / "README.md"]
    while queue:
        page = queue.pop()
        seen.add(page)
        targets = links(page.read_text(encoding="utf-8"))
        near = {(page.parent / t.partition("#")[0]).resolve() for t in targets}
        queue += [p for p in near - seen if p.suffix == ".md" and p.exists()]
    assert [str(p.relative_to(ROOT)) for p in PAGES if p not in seen] == []


def test_a_broken_link_is_found():
    text = "## A heading, here\n[a](#a-heading-here) [b](#nowhere) [c](no.md) [d](https://x)\n"
    assert broken(ROOT / "README.md", text.replace("#a-h", "CHANGELOG.md#a-h")) == [
        "CHANGELOG.md#a-heading-here", "#nowhere", "no.md",
    ]  # fmt: skip
    assert anchors(text) == {"a-heading-here"}
