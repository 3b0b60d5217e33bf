"""The table of routes in docs/guide/rest.md, made of the table by which requests are served.

`python -m tools.routes` writes it; a test compares both.
"""

from __future__ import annotations

import re
from pathlib import Path

from headrace.server.routes import TABLE

PAGE = Path(__file__).resolve().parents[1] / "docs" / "guide" / "rest.md"
HEAD = "| route | role | |\n|---|---|---|\n"


def rows() -> str:
    return "".join(
        f"| `{route.method} {route.path}` | {f'`{route.role}`' if route.role else ''} | "
        f"{_about(route.about, [*(route.body or {}).get('properties', ()), *route.query])} |\n"
        for route in TABLE
    )


def _about(about: str, fields: list[str]) -> str:
    return about + (f" `{'` `'.join(fields)}`" if fields else "")


def with_table(page: str) -> str:
    before, after = page.split(HEAD)
    return before + HEAD + rows() + re.sub(r"\A(?:\||ROUTES)[^\n]*\n(?:\|[^\n]*\n)*", "", after)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
