"""What Spark is told before it starts, here and on a cluster; nothing is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from headrace.engine import java, session
from headrace.errors import RunError


@pytest.mark.parametrize(
    ("master", "here"),
    [
        ("local", True), ("local[2]", True), ("local[*,4]", True),
        ("local-cluster[1,2,1024]", False), ("spark://127.0.0.1:7077", False), ("yarn", False),
    ],
)  # fmt: skip
def test_only_a_local_master_runs_in_this_process(master: str, here: bool) -> None:
    assert session.in_process(master) is here


def test_executors_get_the_import_path_and_only_a_loopback_master_our_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/shared/code")
    for master, near in (("spark://127.0.0.1:7077", True), ("spark://far:7077", False)):
        found = session._settings(master)
        assert found["spark.executorEnv.PYTHONPATH"] == "/shared/code"
        assert ("spark.driver.host" in found) is near
    assert session._settings("local[2]")["spark.driver.host"] == "127.0.0.1"


@pytest.mark.parametrize(("users", "chosen"), [(None, None), ("/opt/python3", "/opt/python3")])
def test_a_cluster_starts_the_users_python_or_ours_but_never_the_launcher(
    monkeypatch: pytest.MonkeyPatch, users: str | None, chosen: str | None
) -> None:
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "")
    monkeypatch.setenv("PYSPARK_PYTHON", users or session._LAUNCHER)  # of a local run before
    session._choose_python("spark://far:7077")
    assert os.environ["PYSPARK_PYTHON"] == (chosen or sys.executable)
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_two_who_print_to_one_file_do_not_write_over_each_other(tmp_path: Path) -> None:
    target, kept = tmp_path / "out", os.dup(1)
    with target.open("w") as out:  # as a shell's > does: at the beginning, not at the end
        os.dup2(out.fileno(), 1)
        try:
            os.write(1, b"first\n")
            session._share_output()
            with target.open("a") as other:
                other.write("second\n")
            os.write(1, b"third\n")
        finally:
            os.dup2(kept, 1)
            os.close(kept)
    assert target.read_text() == "first\nsecond\nthird\n"


@pytest.fixture
def javas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose only Javas are those in this folder."""
    monkeypatch.setattr(java, "PLACES", (f"{tmp_path}/jvm/*",))
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path / "jvm"


def _put(home: Path, version: str) -> str:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return str(home / "bin" / "java")


def test_of_several_javas_the_oldest_that_will_do_is_taken(javas: Path) -> None:
    for version in ("25.0.3", "1.8.0_392", "11.0.2"):
        _put(javas / version, version)
    wanted = _put(javas / "seventeen", "17.0.15")
    assert java.find_java() == wanted
    assert os.environ["JAVA_HOME"] == str(javas / "seventeen")


def test_without_a_java_it_is_said_how_to_get_one(javas: Path) -> None:
    with pytest.raises(RunError, match="HR-RUN-002 Spark needs Java 17 or newer, found none"):
        java.find_java()
    old = _put(javas / "old", "11.0.2")
    with pytest.raises(RunError, match=f"found {old} is version 11") as caught:
        java.find_java()
    assert "apt install openjdk-17-jre-headless" in str(caught.value)


def test_a_user_without_a_name_is_refused_before_spark_fails_on_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    java.check_user()
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    with pytest.raises(RunError, match="HR-RUN-016 the user with the id 4000000000"):
        java.check_user()
