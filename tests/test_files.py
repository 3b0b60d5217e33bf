"""Files that appear whole or not at all."""

from __future__ import annotations

import os

import pytest

from headrace.files import (
    TEMPORARY,
    close_lock,
    file_name,
    link_if_absent,
    replace_durably,
    replacing,
    take_lock,
    write_all,
)


@pytest.mark.parametrize("plain", ["", " +=@,"])
def test_names_stay_different_and_in_their_folder(plain):
    texts = ["", "a", "A", "a/b", "a%2Fb", "..", ".", "../x", "_x", "%5Fx", " ", "%20", "~", "é"]
    names = [file_name(text, plain) for text in texts]

    assert len(set(names)) == len(texts)
    assert all("/" not in n and n and n[0] not in "._ ~" for n in names)


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    with replacing(path) as fresh:
        fresh.write_bytes(b"new")
        assert fresh.parent == tmp_path and fresh.name.startswith(TEMPORARY)
        assert path.read_bytes() == b"old"

    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_a_replacement_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "file"
    replace_durably(path, b"old")

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        replace_durably(path, b"new")

    assert path.read_bytes() == b"old" and list(tmp_path.iterdir()) == [path]


def test_of_two_links_to_one_name_the_first_stays(tmp_path):
    for text in ("one", "two"):
        (tmp_path / text).write_text(text)

    made = [link_if_absent(tmp_path / text, tmp_path / "name") for text in ("one", "two")]

    assert made == [True, False] and (tmp_path / "name").read_text() == "one"


def test_a_short_write_is_continued(tmp_path, monkeypatch):
    write = os.write
    monkeypatch.setattr("os.write", lambda fd, data: write(fd, data[:3]))
    with (tmp_path / "file").open("wb", buffering=0) as file:
        write_all(file.fileno(), b"0123456789")

    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_lock_is_held_by_one_process_and_not_by_what_it_forks(tmp_path):
    lock = take_lock(tmp_path / "storing")
    assert lock is not None and take_lock(tmp_path / "storing") is None
    ready, forked = os.pipe()
    over, end = os.pipe()
    child = os.fork()
    if not child:
        os.close(end)
        os.write(forked, b".")
        os.read(over, 1)  # until the test is over
        os._exit(0)
    try:
        os.read(ready, 1)
        close_lock(lock)
        again = take_lock(tmp_path / "storing")
        assert again is not None
        close_lock(again)
    finally:
        os.close(end)
        os.waitpid(child, 0)
        for fd in (ready, forked, over):
            os.close(fd)
