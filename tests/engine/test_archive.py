"""Where Spark's class archive lies, whom it fits, and that nobody sees half of one.

No JVM is started: in its place `work` writes the file that the JVM's option names.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.engine import archive
from headrace.engine.java import find_java
from headrace.errors import RunError


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installation of its own, without an archive, and a cache of its own."""
    find_java()  # sets JAVA_HOME for good
    monkeypatch.setattr(archive, "end_spark", lambda within: None)  # other tests' Spark goes on
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "prefix" / "share" / "headrace"


@pytest.fixture
def cache(prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache, where the installation cannot be written."""
    access = os.access

    def refuse(place: Path, mode: int) -> bool:
        # The environment's own folder stands for what belongs to somebody else.
        return place not in (prefix, tmp_path) and access(place, mode)

    monkeypatch.setattr(os, "access", refuse)
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache" / "headrace"


def written(text: str) -> Callable[[], object]:
    """Work that a JVM would end by writing this archive."""

    def work() -> None:
        target = re.search(r'-XX:ArchiveClassesAtExit=([^"]+)"', archive.options())
        assert target
        Path(target[1]).write_text(text)

    return work


def test_an_archive_lies_with_the_installation(prefix: Path) -> None:
    assert archive.is_wanted() and archive.options() == ""
    made = archive.record(written("classes"))
    assert made.parent == prefix and made.read_text() == "classes"
    assert archive.find() == made and not archive.is_wanted()
    assert f'"-XX:SharedArchiveFile={made}"' in archive.options()


def test_or_in_the_users_cache(cache: Path) -> None:
    assert archive.is_wanted()
    made = archive.record(written("classes"))
    assert made.parent == cache and archive.find() == made


def test_in_a_cache_only_what_the_user_has_made_is_mapped(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.record(written("classes"))
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    assert archive.find() is None and archive.options() == ""


def test_where_nothing_can_be_written_none_is_offered_and_making_one_is_an_error(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert not archive.is_wanted()
    with pytest.raises(RunError, match="HR-RUN-005") as caught:
        archive.record(written("classes"))
    assert str(prefix) in str(caught.value)


def test_another_spark_or_installation_needs_another(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.record(written("classes"))
    with monkeypatch.context() as later:
        later.setattr("pyspark.__version__", "4.3.1")
        assert archive.is_wanted()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(archive, "_find_spark_home", lambda: "/elsewhere/pyspark")
        assert archive.is_wanted()
    assert not archive.is_wanted()


@pytest.mark.parametrize("changed", ["release", "lib/server/libjvm.so"])
def test_an_upgraded_java_needs_another(
    prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    home = tmp_path / "java"
    for name in ("bin/java", "lib/server/libjvm.so"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch()
    (home / "bin/java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.15"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))
    archive.record(written("classes"))
    assert not archive.is_wanted()

    (home / changed).write_text('JAVA_VERSION="17.0.16"\n')

    assert archive.is_wanted()


def test_of_two_who_make_it_at_once_each_gives_a_whole_one(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def while_another_makes_it() -> None:
        written("the first")()
        ours = os.environ.pop("HEADRACE_RECORD")
        with monkeypatch.context() as another:
            another.setattr(os, "getpid", lambda: 4711)
            seen.append(archive.record(written("the second")).read_text())
        os.environ["HEADRACE_RECORD"] = ours

    assert archive.record(while_another_makes_it).read_text() == "the first"
    assert seen == ["the second"] and len(list(prefix.iterdir())) == 1


def test_what_fails_leaves_nothing(prefix: Path) -> None:
    def fail() -> None:
        written("half")()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        archive.record(fail)
    with pytest.raises(RunError, match="HR-RUN-005"):
        archive.record(lambda: None)
    assert list(prefix.iterdir()) == [] and "HEADRACE_RECORD" not in os.environ


def test_what_was_abandoned_and_what_another_spark_left_is_removed(
    prefix: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("pyspark.__version__", "4.2.9")
        old = archive.record(written("old"))
    abandoned, fresh = prefix / ".spark-4.2.9.jsa.1", prefix / ".spark-4.3.0.jsa.2"
    other = prefix / "spark-4.2.9-java-12345678-87654321.jsa"  # of another installation
    for file in (abandoned, fresh, other):
        shutil.copy(old, file)
    os.utime(abandoned, (time.time() - 7_200,) * 2)

    made = archive.record(written("new"))

    assert set(prefix.iterdir()) == {fresh, other, made}
