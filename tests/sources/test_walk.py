"""Which files a folder or a glob has: each real file once, whatever links lead to it."""

from __future__ import annotations

import glob
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import read_split, refusal
from tests.sources.test_files import as_nobody, numbers, put, watch, whole

from headrace.schema import schema_of
from headrace.sources import open_source
from headrace.sources.scan import pattern_of

FOLDERS = ["", "a", "a/b", "c", "c/_d", ".e"]
NAMES = st.sampled_from(["1.json", "2.json", "x.csv", "_3.json", ".4.json"])
LINKS = st.tuples(st.sampled_from(FOLDERS), st.sampled_from("lmn"), st.sampled_from(FOLDERS))


def real_files(pattern: str, root: Path) -> list[str]:
    """The real paths of what fits, by the code under test."""
    found = pattern_of(f"{root}/{pattern}", "files:x", "json", True).scan()
    return sorted(os.path.realpath(f.path) for f in found)


def reachable(root: str) -> set[str]:
    """The real paths of all files below, through links, none through a hidden name."""
    seen, todo, files = set(), [os.path.realpath(root)], set()
    while todo:
        folder = todo.pop()
        if folder in seen:
            continue
        seen.add(folder)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if not name.startswith(("_", ".")) and os.path.isdir(path):
                todo.append(os.path.realpath(path))
            elif not name.startswith(("_", ".")) and os.path.isfile(path):
                files.add((name, os.path.realpath(path)))
    return {real for name, real in files if name.endswith(".json")}


@given(
    files=st.lists(st.tuples(st.sampled_from(FOLDERS), NAMES), max_size=8),
    folder_links=st.lists(LINKS, max_size=6),
    file_links=st.lists(
        st.tuples(st.sampled_from(FOLDERS), st.sampled_from(["l.json", "m.json"]), NAMES),
        max_size=4,
    ),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_any_tree_with_links_in_it_has_each_real_file_once(files, folder_links, file_links):
    with tempfile.TemporaryDirectory() as made:
        root = Path(made).resolve() / "in"
        for folder in FOLDERS:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for folder, name in files:
            (root / folder / name).write_text("{}")
        for folder, name, target in folder_links:
            if not os.path.lexists(root / folder / name):
                (root / folder / name).symlink_to(root / target)
        for folder, name, target in file_links:
            if not os.path.lexists(root / folder / name):
                (root / folder / name).symlink_to(root / "a" / target)

        assert real_files("**/*.json", root) == sorted(reachable(str(root)))
        for pattern in ("*.json", "*/*.json", "a/*/1.json", "[ac]/*.json", "*/b/?.json"):
            fits = [
                os.path.realpath(p)
                for p in glob.glob(pattern, root_dir=root)
                if not any(part.startswith(("_", ".")) for part in Path(p).parts)
                for p in [root / p]
                if p.is_file()
            ]
            assert real_files(pattern, root) == sorted(set(fits)), pattern


def test_a_link_to_the_folder_itself_adds_nothing(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder / "a.json", 1)
    (folder / "here").symlink_to(folder)
    (folder / "also").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    (folder / "nowhere.json").symlink_to(folder / "missing")

    assert numbers(whole(folder / "**" / "*.json")) == [1]


def test_a_file_that_is_read_is_not_read_again_through_a_link_that_comes_later(tmp_path):
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    put(outside / "x.json", 1)
    (folder / "z.json").symlink_to(outside / "x.json")
    source = watch(folder)
    at = source.latest("files")

    (folder / "a.json").symlink_to(outside / "x.json")
    put(folder / "new.json", 2)

    assert numbers(source, at) == [2]
    assert [r["a"] for r in read_split(watch(folder), "files", at)[0]] == [2]


def test_a_link_that_leads_to_another_file_later_is_a_new_file(tmp_path):
    folder, outside = tmp_path / "in", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    put(outside / "1.json", 1)
    put(outside / "2.json", 2)
    (folder / "now.json").symlink_to(outside / "1.json")
    source = watch(folder)
    at = source.latest("files")

    (folder / "now.json").unlink()
    (folder / "now.json").symlink_to(outside / "2.json")

    assert numbers(source, at) == [2]


def test_hard_links_are_files_of_their_own(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    put(folder / "a.json", 1)
    os.link(folder / "a.json", folder / "b.json")

    assert numbers(whole(folder)) == [1, 1]


def test_a_folder_below_that_may_not_be_looked_into_is_an_error_not_an_absence():
    with tempfile.TemporaryDirectory() as made:
        root = Path(made)
        root.chmod(0o755)
        (root / "x").mkdir()
        put(root / "a.json", 1)
        source = whole(root / "**" / "*.json")
        (root / "x").chmod(0)
        try:
            for call in (source.check, lambda: source.latest("files")):
                error = as_nobody(call)
                assert "HR-INPUT-003" in error and str(root / "x") in error
        finally:
            (root / "x").chmod(0o755)


@pytest.mark.parametrize(
    "path", ["s3://bucket/x", "hdfs://host:9000/x/*.json", "S3A://b", "file:///tmp/x", "abfss://c@a/"]
)  # fmt: skip
def test_a_place_on_another_system_is_refused_and_makes_nothing(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)

    error = refusal(open_source, f"files:{path}", schema_of("a bigint"), "json")

    assert error.code == "HR-INPUT-001" and path in error.message
    assert list(tmp_path.iterdir()) == []
