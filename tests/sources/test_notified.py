"""watch="notify": what is learnt from the operating system is what listing the folder would show.

The oracle is the same input with watch="list" on the same files: after every look both must have
stored the same list, byte for byte. Folders are listed again only where that is said here.
"""

from __future__ import annotations

import copy
import errno
import gzip
import logging
import os
import pickle
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sources.reading import read_split, refusal
from tests.sources.test_file_splits import devices, written
from tests.sources.test_file_splits import opened as opened_by_time
from tests.sources.test_files import put

from headrace.clock import ManualClock
from headrace.errors import InputError
from headrace.schema import schema_of
from headrace.sources import Source, folder_looks, inotify, open_source, walk
from headrace.sources import listing as listings
from headrace.sources.scan import PathPattern

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has inotify")

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "60"))
NUMBERS = schema_of("a bigint")


@pytest.fixture(autouse=True)
def never_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not told is not found: no listing from time to time."""
    monkeypatch.setattr(folder_looks, "AGAIN", 10**9)


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The listings of folders that there were."""
    done: list[str] = []
    all_files = PathPattern.all_files

    def noted(pattern: PathPattern, walk: Any) -> Any:
        done.append(pattern.place)
        return all_files(pattern, walk)

    monkeypatch.setattr(PathPattern, "all_files", noted)
    return done


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "in"
    path.mkdir()
    return path


def opened(path: Path | str, job: Path, **options: Any) -> Source:
    return open_source(f"files:{path}", NUMBERS, "json", options, folder=str(job))


def notified(folder: Path, path: str = "", **options: Any) -> Source:
    return opened(folder / path, folder.parent / "job", watch="notify", **options)


def read_now(source: Any) -> list[str]:
    """The files of the sequence after a look, in order."""
    source.discover()
    return [s.extent.path for s in source.stretches("files", 0, source.latest("files"))]


def numbers(source: Source) -> list[int]:
    source.discover()
    return [r["a"] for r in read_split(source, "files")[0]]


# Equal to listing, whatever is done to the files

FOLDERS = ["", "s", "s/t", "_s"]
FILES = ["a.json", "b.json", "_a.json", "c.json.gz"]
FOLDER, FILE = st.sampled_from(FOLDERS), st.tuples(st.sampled_from(FOLDERS), st.sampled_from(FILES))
STEP = st.one_of(
    st.tuples(st.just("append"), FILE, st.booleans()),
    st.tuples(st.just("append"), FILE, st.booleans()),
    st.tuples(st.just("touch"), FILE, st.integers(1, 5)),
    st.tuples(st.just("move"), FILE, FILE),
    st.tuples(st.just("out"), FILE),
    st.tuples(st.just("back"), FILE),
    st.tuples(st.just("delete"), FILE),
    st.tuples(st.just("make"), FOLDER),
    st.tuples(st.just("remove"), FOLDER),
    st.tuples(st.just("rename"), FOLDER, FOLDER),
    st.tuples(st.just("swap"), FOLDER),
    st.tuples(st.just("link"), FILE, FILE),
    st.tuples(st.just("link folder"), FOLDER, FILE),
    st.tuples(st.just("restart")),
    st.just(("look",)),
    st.just(("look",)),
    st.just(("look",)),
)


class Tree:
    """Files, and what is done to them; what cannot be done is not."""

    def __init__(self, place: Path) -> None:
        self.root, self.outside, self._count = place / "in", place / "outside", 0
        self.root.mkdir()
        self.outside.mkdir()

    def do(self, what: str, *at: Any) -> None:
        paths = [self.root.joinpath(*a) if isinstance(a, tuple) else a for a in at]
        try:
            getattr(self, what.replace(" ", "_"))(*paths)
        except (OSError, shutil.Error):
            return  # there is no such file

    def append(self, path: Path, whole: bool) -> None:
        self._count += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gz":
            data = gzip.compress(f'{{"a": {self._count}}}\n'.encode())
            path.write_bytes(data if whole else data[:-9])
            return
        with path.open("a") as file:
            file.write(f'{{"a": {self._count}}}\n{{"a"' if not whole else f": {self._count}}}\n")

    def touch(self, path: Path, at: int) -> None:
        os.utime(path, (at, at))

    def move(self, path: Path, to: Path) -> None:
        path.rename(to)

    def out(self, path: Path) -> None:
        path.rename(self.outside / path.name)

    def back(self, path: Path) -> None:
        (self.outside / path.name).rename(path)

    def delete(self, path: Path) -> None:
        path.unlink()

    def make(self, folder: str) -> None:
        (self.root / folder).mkdir(parents=True)

    def remove(self, folder: str) -> None:
        shutil.rmtree(self.root / folder)

    def rename(self, folder: str, to: str) -> None:
        (self.root / folder).rename(self.root / to if to else self.outside / "in")

    def swap(self, folder: str) -> None:
        """Another folder of the same name, filled before it is there."""
        new = self.outside / "new"
        new.mkdir()
        self._count += 1
        put(new / "a.json", self._count)
        if (self.root / folder).exists():
            (self.root / folder).rename(self.outside / f"old{self._count}")
        new.rename(self.root / folder)

    def link(self, path: Path, to: Path) -> None:
        path.symlink_to(to)

    def link_folder(self, folder: str, path: Path) -> None:
        path.symlink_to(self.root / folder)


class Both:
    """The two inputs on one tree, and whether they agree."""

    def __init__(self, place: Path, pattern: str) -> None:
        self._place, self._uri = place, str(place / "in" / pattern)
        self._open()

    def _open(self) -> None:
        self._sources = {
            how: opened(self._uri, self._place / how, watch=how) for how in ("list", "notify")
        }

    def look(self) -> bool:
        """False if both refuse to go on."""
        codes = {how: self._code(s) for how, s in self._sources.items()}
        assert codes["list"] == codes["notify"]
        lists = {how: self._stored(how) for how in self._sources}
        assert lists["list"] == lists["notify"]
        waits = {how: s.unsettled("files") for how, s in self._sources.items()}
        assert waits["list"] == waits["notify"]
        return codes["list"] is None

    def restart(self) -> None:
        self._open()

    def _code(self, source: Source) -> str | None:
        try:
            source.discover()
        except InputError as error:
            return error.code
        return None

    def _stored(self, how: str) -> bytes:
        path = self._place / how / "inputs" / "input" / "files"
        return path.read_bytes() if path.exists() else b""


@given(
    pattern=st.sampled_from(["", "**/*.json*", "*/*.json", "s/**/[ab].json", "s"]),
    steps=st.lists(STEP, max_size=25),
)
@settings(max_examples=EXAMPLES, deadline=None)
def test_notification_gives_what_listing_gives(
    tmp_path_factory: pytest.TempPathFactory, pattern: str, steps: list[tuple[Any, ...]]
) -> None:
    place = tmp_path_factory.mktemp("both")
    tree = Tree(place)
    if pattern == "s":
        (tree.root / "s").mkdir()
    both = Both(place, pattern)
    for step in [*steps, ("look",)]:
        if step[0] == "restart":
            both.restart()
        elif step[0] != "look":
            tree.do(*step)
        elif not both.look():
            break


# What is told needs no listing


def in_a_new_folder(folder: Path) -> None:
    (folder / "s" / "t").mkdir(parents=True)
    put(folder / "s" / "t" / "new.json", 2)


def renamed_to_be_visible(folder: Path) -> None:
    put(folder / "_new.json", 2)
    (folder / "_new.json").rename(folder / "new.json")


def in_a_folder_that_was_moved(folder: Path) -> None:
    (folder / "x" / "y").rename(folder / "z")
    put(folder / "z" / "t" / "new.json", 2)


def renamed_with_its_folder(folder: Path) -> None:
    (folder / "_s").mkdir()
    put(folder / "_s" / "new.json", 2)
    (folder / "_s").rename(folder / "s")


def moved_here(folder: Path) -> None:
    put(folder.parent / "new.json", 2)
    (folder.parent / "new.json").rename(folder / "new.json")


def linked_here(folder: Path) -> None:
    put(folder.parent / "new.json", 2)
    os.link(folder.parent / "new.json", folder / "new.json")


def grown(folder: Path) -> None:
    with (folder / "old.json").open("a") as file:
        file.write('{"a": 2}\n')


@pytest.mark.parametrize(
    "change",
    [
        in_a_new_folder,
        in_a_folder_that_was_moved,
        renamed_to_be_visible,
        renamed_with_its_folder,
        moved_here,
        linked_here,
        grown,
    ],
)
def test_a_change_is_noticed_without_listing(
    folder: Path, listed: list[str], change: Callable[[Path], None]
) -> None:
    put(folder / "old.json", 1)
    (folder / "x" / "y" / "t").mkdir(parents=True)
    source = notified(folder, "**/*.json")
    source.discover()
    assert len(listed) == 1

    change(folder)

    assert numbers(source) == [1, 2]
    assert len(listed) == 1


def test_a_look_costs_what_has_changed_and_not_what_there_is(
    folder: Path, listed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(300):
        put(folder / f"{i}.json", i)
    source = notified(folder)
    source.discover()
    looked_at: list[str] = []
    scan_file = PathPattern._scan_file
    monkeypatch.setattr(
        PathPattern,
        "_scan_file",
        lambda self, name, real: looked_at.append(name) or scan_file(self, name, real),
    )
    monkeypatch.delattr(listings.Listing, "files")  # the whole list is not gone through

    source.discover()
    assert looked_at == []
    put(folder / "new.json", 300)
    source.discover()
    assert looked_at == ["new.json"]
    assert len(listed) == 1


def test_listing_does_not_go_through_the_whole_list_either(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(listings.Listing, "files")
    for splits in (None, "file", 3):
        source = opened(folder, folder.parent / f"job {splits}", splits=splits)
        for i in range(3):
            put(folder / f"{splits}{i}.json", i)
            source.discover()
        assert sum(source.latest(s) for s in source.splits()) > 0


def test_folders_that_are_made_and_filled_while_it_looks_are_read_once(
    folder: Path, listed: list[str]
) -> None:
    count = 400

    def work() -> None:
        for i in range(count):
            below = folder / f"{i % 7}" / f"{i}"
            below.mkdir(parents=True)
            put(below / "_x.json", i)
            (below / "_x.json").rename(below / "x.json")
            if i % 5 == 0:
                shutil.rmtree(folder / f"{i % 7}" / f"{i}")  # before or after it was seen

    source = notified(folder, "**/*.json")
    source.discover()
    worker = threading.Thread(target=work)
    worker.start()
    while worker.is_alive():
        source.discover()
    worker.join()

    paths = read_now(source)
    assert len(paths) == len(set(paths))
    assert {p for p in paths if int(p.split("/")[1]) % 5} == {
        f"{i % 7}/{i}/x.json" for i in range(count) if i % 5
    }
    assert len(listed) == 1


def test_what_comes_while_a_new_folder_is_read_is_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Just after its entries were read, for each folder: it is watched by then."""
    source = notified(folder, "**/*.json")
    entries = walk._entries

    def then_more_comes(path: str) -> Any:
        there = entries(path)
        put(Path(path) / "x.json", 1)
        (Path(path) / "s").mkdir(exist_ok=True) if path.count("/s") < 3 else None
        return there

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(walk, "_entries", then_more_comes)
        for _ in range(5):
            source.discover()

    assert {p.count("/") for p in read_now(source)} == {0, 1, 2, 3}


def test_what_is_gone_is_not_remembered(folder: Path) -> None:
    (folder / "s").mkdir()
    for name in ("a.json", "b.json", "s/c.json"):
        put(folder / name, 1)
    source: Any = notified(folder, "**/*.json")
    source.discover()
    (folder / "a.json").unlink()
    (folder / "b.json").rename(folder / "_b.json")
    shutil.rmtree(folder / "s")

    source.discover()

    assert source._arrivals._stamps == {}
    assert len(source._arrivals._looks._places) == 1


# When it is not told of everything, it lists


def test_when_notes_were_lost_the_folder_is_listed(folder: Path, listed: list[str]) -> None:
    room = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if room > 50_000:
        pytest.skip("the queue of notes is too long to be filled here")
    put(folder / "first.json", 0)
    source = notified(folder)
    source.discover()
    for i in range(room // 3 + 10):  # each is made, written and closed
        put(folder / f"{i}.json", i)

    assert len(read_now(source)) == room // 3 + 11
    assert len(listed) == 2
    put(folder / "last.json", 1)
    assert read_now(source)[-1] == "last.json"
    assert len(listed) == 2


def test_from_time_to_time_it_lists_whatever_was_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told is only what this machine does by the names in the folder."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr(folder_looks, "AGAIN", 60)
    put(folder / "a.json", 1)
    os.link(folder / "a.json", folder.parent / "elsewhere")
    source = notified(folder)
    assert numbers(source) == [1]

    with (folder.parent / "elsewhere").open("a") as file:
        file.write('{"a": 2}\n')

    now[0] += 59
    assert numbers(source) == [1]
    now[0] += 1
    assert numbers(source) == [1, 2]


@pytest.mark.parametrize("looked", [False, True])
def test_a_folder_that_is_removed_and_made_again_is_noticed(
    folder: Path, listed: list[str], looked: bool
) -> None:
    put(folder / "a.json", 1)
    source = notified(folder)
    source.discover()
    shutil.rmtree(folder)
    if looked:
        assert read_now(source) == ["a.json"]
    folder.mkdir()
    put(folder / "b.json", 2)
    assert read_now(source) == ["a.json", "b.json"]
    count = len(listed)
    put(folder / "c.json", 3)
    assert read_now(source) == ["a.json", "b.json", "c.json"]
    assert len(listed) == count


@pytest.mark.parametrize("later", [False, True])
def test_what_a_link_leads_to_is_noticed(folder: Path, later: bool) -> None:
    target = folder.parent / "target.json"
    put(target, 1)
    source = notified(folder)
    if later:
        source.discover()
    (folder / "link.json").symlink_to(target)
    assert numbers(source) == [1]

    with target.open("a") as file:
        file.write('{"a": 2}\n')

    assert numbers(source) == [1, 2]


def test_the_path_may_be_a_link_that_is_turned(folder: Path) -> None:
    other = folder.parent / "other"
    other.mkdir()
    put(folder / "a.json", 1)
    put(other / "b.json", 2)
    link = folder.parent / "link"
    link.symlink_to(folder)
    source = opened(link, folder.parent / "job", watch="notify")
    assert numbers(source) == [1]
    link.unlink()
    link.symlink_to(other)

    assert read_now(source) == ["a.json", "b.json"]


# What goes wrong


@pytest.mark.parametrize("watch", ["list", "notify"])
def test_rows_are_not_lost_when_the_list_could_not_be_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch, watch: str
) -> None:
    source = opened(folder, folder.parent / "job", watch=watch)
    source.discover()
    put(folder / "a.json", 1)
    with monkeypatch.context() as full:
        full.setattr(listings, "sync", _raising(errno.ENOSPC))
        assert refusal(source.discover).code == "HR-INPUT-003"

    assert numbers(source) == [1]


@pytest.mark.parametrize("watch", ["list", "notify"])
def test_a_refusal_is_one_at_the_next_look_too(folder: Path, watch: str) -> None:
    put(folder / "a.json", 1)
    source = opened(folder, folder.parent / "job", watch=watch)
    source.discover()
    put(folder / "a.json", 2)
    put(folder / "b.json", 3)

    assert refusal(source.discover).code == "HR-INPUT-007"
    assert refusal(source.discover).code == "HR-INPUT-007"


@pytest.mark.parametrize("watch", ["list", "notify"])
def test_a_file_that_was_never_finished_and_is_removed_is_not_waited_for(
    folder: Path, watch: str
) -> None:
    (folder / "a.json.gz").write_bytes(gzip.compress(b'{"a": 1}\n')[:-9])
    source = opened(folder, folder.parent / "job", watch=watch)
    source.discover()
    assert source.unsettled("files")

    (folder / "a.json.gz").unlink()
    source.discover()

    assert not source.unsettled("files")


def test_a_file_that_is_not_finished_is_looked_at_though_nothing_is_told(folder: Path) -> None:
    clock = ManualClock(0)
    (folder / "a.json.gz").write_bytes(gzip.compress(b'{"a": 1}\n')[:-9])
    source = open_source(
        f"files:{folder}", NUMBERS, "json", {"watch": "notify"},
        folder=str(folder.parent / "job"), clock=clock,
    )  # fmt: skip
    source.discover()
    clock.advance(10_001)

    assert refusal(source.discover).code == "HR-INPUT-070"


def _raising(code: int) -> Callable[..., None]:
    def call(*_: Any) -> None:
        raise OSError(code, os.strerror(code))

    return call


@pytest.mark.parametrize(
    ("name", "reason"),
    [("watch", errno.ENOSPC), ("__init__", errno.EMFILE), ("notes", errno.EIO)],
)
def test_without_room_for_watches_it_lists_and_says_so(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: str,
    reason: int,
) -> None:
    caplog.set_level(logging.WARNING, "headrace.files")
    put(folder / "a.json", 1)
    source = notified(folder)
    monkeypatch.setattr(inotify.Inotify, name, _raising(reason))

    assert numbers(source) == [1]
    put(folder / "b.json", 2)
    assert numbers(source) == [1, 2]
    assert [r.getMessage() for r in caplog.records] == [
        f"files:{folder}: watch='notify' is not possible ({os.strerror(reason)}); "
        "the folder is listed at every look"
    ]


def test_elsewhere_than_on_linux_it_lists_and_says_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    put(folder / "a.json", 1)

    assert numbers(notified(folder)) == [1]
    assert "darwin has no inotify" in caplog.text


def test_no_watch_is_left_open(folder: Path) -> None:
    def queues() -> int:
        links = (os.readlink(p) for p in Path("/proc/self/fd").iterdir() if p.is_symlink())
        return sum("inotify" in link for link in links)

    before = queues()
    source = notified(folder)
    source.discover()
    assert queues() == before + 1

    del source

    assert queues() == before


@pytest.mark.parametrize("copied", [copy.copy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_takes_no_notes_from_its_original(
    folder: Path, copied: Callable[[Source], Source]
) -> None:
    source = notified(folder)
    source.discover()
    other = copied(source)
    put(folder / "a.json", 1)

    assert other.has_more("files", 0)
    assert source.has_more("files", 0)
    other.discover()
    assert numbers(source) == [1]


def test_a_run_to_the_end_lists_once_and_a_single_file_is_looked_at(folder: Path) -> None:
    put(folder / "a.json", 1)
    options = {"watch": "notify"}
    to_the_end = open_source(f"files:{folder}", NUMBERS, "json", options, until="end")
    assert numbers(to_the_end) == [1]
    single = opened(folder / "a.json", folder.parent / "job", watch="notify")
    assert numbers(single) == [1]
    put(folder / "a.json", 1, 2)
    assert numbers(single) == [1, 2]


def test_another_way_to_watch_is_refused(folder: Path) -> None:
    error = refusal(lambda: opened(folder, folder.parent / "job", watch="mail"))
    assert error.code == "HR-INPUT-013"
    assert error.hint == 'Write watch="list" or watch="notify".'


# In which order


@pytest.mark.parametrize("watch", ["list", "notify"])
@pytest.mark.parametrize(
    ("order", "first", "then"),
    [
        (None, ["b", "d", "a", "c"], ["f", "e"]),
        ("time", ["b", "d", "a", "c"], ["f", "e"]),
        ("name", ["a", "b", "c", "d"], ["e", "f"]),
    ],
)
def test_files_that_are_new_at_a_look_come_by_age_or_by_name(
    folder: Path, watch: str, order: str | None, first: list[str], then: list[str]
) -> None:
    options = {} if order is None else {"order": order}
    source = opened(folder, folder.parent / "job", watch=watch, **options)
    source.discover()
    for names in ({"b": 10, "d": 10, "a": 11, "c": 11}, {"f": 1, "e": 2}):
        for name, age in names.items():
            put(folder / f"{name}.json", 1)
            os.utime(folder / f"{name}.json", (age, age))
        source.discover()

    assert read_now(source) == [f"{n}.json" for n in (*first, *then)]


def test_files_in_order_of_their_names_are_one_split_whatever_times_they_hold(
    tmp_path: Path,
) -> None:
    for name, times in (("c", range(5)), ("a", range(3, 9)), ("b", range(2))):
        written(tmp_path / "in", name, list(times))

    source = opened_by_time(tmp_path / "in", tmp_path / "job", order="name")

    assert devices(source) == {"files": ["a", "b", "c"]}


def test_another_order_is_refused(folder: Path) -> None:
    error = refusal(lambda: opened(folder, folder.parent / "job", order="size"))
    assert error.code == "HR-INPUT-013"
    assert error.hint == 'Write order="time" or order="name".'
