"""The documentation is true: links lead somewhere, code runs, and prints what it says.

Every page is one program, run from top to bottom in a folder of its own:

- a ```python block is run; a ```text block right after it is what it prints;
- a block whose first line is a comment with a file's name is also kept under that name;
- functions called `test_...`, and classes called `Test...`, are run by pytest;
- a ```console block is typed: `$ headrace ...` is run, other commands are not; what follows
  is what is printed (standard error included); `...` is any text, on its own any lines; `^C`
  on a line of its own is pressed when what is shown before it has been printed.

Only files and headings of this repository are checked; the web is not visited. Pages run
in process; what they run runs on the Spark of the tests, and reaches the servers of `page_servers`.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.page_servers import end_servers, with_servers
from tests.terminal import Typed, forget, type_in

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
BLOCK = re.compile(
    r"^```(\w+)\n(.*?)^```$\n?(?=(\n```text\n(.*?)^```$)?)", re.MULTILINE | re.DOTALL
)
FILE = re.compile(r"# (\S+\.\w+)\n")
CTRL_C = "^C\n"


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


def test_the_index_names_every_page():
    index = {t.partition("#")[0] for t in links((DOCS / "README.md").read_text(encoding="utf-8"))}
    pages = {str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md")} - {"README.md"}
    assert pages - index == set()


def test_the_files_that_developers_are_sent_to_exist():
    places = (ROOT / "src" / "headrace", ROOT)
    for page in (DOCS / "life-of-a-record.md", *sorted((DOCS / "decisions").glob("*.md"))):
        named = re.findall(r"`(\w[\w/]*/\w+\.py)`", page.read_text(encoding="utf-8"))
        gone = [name for name in named if not any((place / name).exists() for place in places)]
        assert gone == [], f"{page.relative_to(ROOT)}: name these files as they are called now"


def test_a_broken_link_is_found():
    text = "## A heading, here\n[a](#a-heading-here) [b](#nowhere) [c](no.md) [d](https://x)\n"
    assert broken(ROOT / "README.md", text.replace("#a-h", "CHANGELOG.md#a-h")) == [
        "CHANGELOG.md#a-heading-here", "#nowhere", "no.md",
    ]  # fmt: skip
    assert anchors(text) == {"a-heading-here"}


# code


class Block(NamedTuple):
    kind: str
    text: str
    shown: str


def blocks(text: str) -> list[Block]:
    found = BLOCK.findall(text)
    return [Block(kind, code, shown) for kind, code, _, shown in found if kind != "text"]


def play(page: str, text: str) -> None:
    """Run everything on a page, in the working folder."""
    names: dict[str, Any] = {"__name__": "guide"}
    found = blocks(text)
    for block in found:
        if file := FILE.match(block.text):
            Path(file[1]).write_text(block.text, encoding="utf-8")
        if block.kind == "python":
            printed = run(page, block.text, names)
            assert matches(printed, block.shown), f"{block.text}\nprinted\n\n{printed}"
        elif block.kind == "console":
            for command, shown in typed(block.text):
                result = invoke(command, shown)
                wanted = shown.replace(CTRL_C, "")
                right = matches(result.output, wanted) if shown else result.exit_code == 0
                assert right, f"$ {shlex.join(command)}\n{result.output}"
    if any(name.startswith(("test_", "Test")) for name in names):
        Path("test_page.py").write_text("\n".join(b.text for b in found if b.kind == "python"))
        assert pytest.main(["-q", "-p", "no:cacheprovider", "test_page.py"]) == 0


def run(page: str, code: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, page, "exec", dont_inherit=True), names)
    return printed.getvalue()


def typed(text: str) -> Iterator[tuple[list[str], str]]:
    """The headrace commands of a console block, each with the output shown after it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command, comments=True)
        if words[0] == "headrace":
            yield words, shown


def invoke(words: list[str], shown: str) -> Typed:
    before, pressed, _ = shown.partition(CTRL_C)
    return type_in(words[1:], (lambda printed: matches(printed, before)) if pressed else None)


def matches(printed: str, shown: str) -> bool:
    """Whether the text is what the page shows; `...` stands for any text, or any lines."""
    pattern = "".join(map(_line, shown.splitlines()))
    return re.fullmatch(pattern, "".join(f"{p}\n" for p in printed.splitlines())) is not None


def _line(shown: str) -> str:
    if shown == "...":
        return "(?:.*\n)*"
    return ".*".join(map(re.escape, shown.split("..."))) + "\n"


def needs_spark(text: str) -> bool:
    calls = {"python": ("hr.run(", "spark_harness("), "console": ("$ headrace run ",)}
    return any(call in b.text for b in blocks(text) for call in calls.get(b.kind, ()))


def pages() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        if any(b.kind in ("python", "console") for b in blocks(text)):
            marks = [pytest.mark.spark] if needs_spark(text) else []
            yield pytest.param(page, marks=marks, id=str(page.relative_to(ROOT)))


@pytest.mark.parametrize("page", [*pages()])
def test_what_a_page_shows_runs_and_prints_what_it_says(page, request, tmp_path, monkeypatch):
    text = page.read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delenv("HEADRACE_LOG", raising=False)
    if needs_spark(text):
        request.getfixturevalue("spark")
    try:
        play(page.name, with_servers(page.name, text))
    finally:
        end_servers()
        forget(tmp_path)


def test_a_page_that_lies_is_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    page = "```python\n# one.py\nprint(1)\n```\n\n```text\n{}\n```\n"
    play("page.md", page.format("1"))
    assert Path("one.py").exists()
    with pytest.raises(AssertionError):
        play("page.md", page.format("2"))
    with pytest.raises(AssertionError):
        play("page.md", "```python\nprint(1)\n```\n")
    with pytest.raises(AssertionError):
        play("page.md", "```console\n$ headrace --version\nheadrace 0.0.0\n```\n")
    assert matches("a\nb\nc\n", "a\n...\nc\n") and matches("a\nc", "a\n...\nc")
    assert matches("a\nb", "a\n...") and matches("a", "a\n...") and not matches("ab", "a\n...")
