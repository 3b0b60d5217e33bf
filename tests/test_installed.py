"""Headrace as users install it: into an empty environment, outside the clone, without extras.

The wheel is built from the sdist, so one that leaves a file out is found here. By default it is
installed once, on the Python of the tests; HEADRACE_INSTALLED=all (`make installed`) does it
with pip on every supported Python, from the sdist and as an editable install, and makes the class
archive. A Python that this machine does not have is skipped: not run, which is not passed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from statistics import mean

import duckdb
import pytest

from tests.test_docs import blocks, matches, typed

ROOT = Path(__file__).resolve().parents[1]
ALL = os.environ.get("HEADRACE_INSTALLED") == "all"
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
SUPPORTED = ("3.11", "3.12", "3.13")
CASES = [("wheel", HERE)]
if ALL:
    CASES = [*(("wheel", version) for version in SUPPORTED), ("sdist", HERE), ("editable", HERE)]

EVERY_MODULE = """
import importlib, pkgutil, headrace
names = [m.name for m in pkgutil.walk_packages(headrace.__path__, "headrace.")]
for name in [*names, "headrace_pytest"]:
    try:
        importlib.import_module(name)
    except headrace.HeadraceError as error:
        assert "pip install 'headrace[" in str(error), name
        print(name)
assert len(names) > 300, len(names)
"""
EVERY_NAME = "import headrace; [getattr(headrace, name) for name in headrace.__all__]"
WITHOUT_JAVA = """
import sys
from headrace.cli.app import main
from headrace.engine import java
java.PLACES = ()
sys.argv[1:] = ["run", "hot.py", "--until", "end"]
main()
"""


def quiet(*command: str | Path, env: Mapping[str, str] | None = None) -> None:
    done = subprocess.run(
        [*map(str, command)], cwd=ROOT, env=env, check=False, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert done.returncode == 0, f"{command}\n{done.stdout}"


@dataclass(frozen=True)
class Installed:
    """An environment that has Headrace, and a folder to work in."""

    environment: Path
    folder: Path

    def run(self, program: str, *arguments: str, java: bool = True) -> tuple[int, str]:
        """Run a program of the environment as its user would; standard error is included."""
        done = subprocess.run(
            [str(self.environment / "bin" / program), *arguments], cwd=self.folder,
            env=self._variables(java), check=False, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        return done.returncode, done.stdout

    def _variables(self, java: bool) -> dict[str, str]:
        """Nothing of the clone, its environment or its tests; with java=False no Java either."""
        found = {"HOME": str(self.folder), "LANG": "C.UTF-8"}
        if not java:  # Spark's scripts need a shell's tools, but nobody gets that far
            return {**found, "PATH": str(self.environment / "bin")}
        home = os.environ.get("JAVA_HOME")
        return {**found, "PATH": os.defpath} | ({"JAVA_HOME": home} if home else {})


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and with the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("built")
    if not reaches_an_index(folder):
        pytest.skip("not run: no package index can be reached")
    quiet(sys.executable, "-m", "build", "--outdir", folder, ROOT)
    return folder


def reaches_an_index(folder: Path) -> bool:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, "hatchling"]
    variables = {**os.environ, "PIP_RETRIES": "0"}
    return subprocess.run(command, env=variables, check=False, capture_output=True).returncode == 0


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def installed(request: pytest.FixtureRequest, built: Path) -> Iterator[Installed]:
    kind, version = request.param
    python = interpreter(version)
    if python is None:
        pytest.skip(f"not run: this machine has no Python {version}")
    what = {"wheel": "headrace-*.whl", "sdist": "headrace-*.tar.gz"}
    place = [next(built.glob(what[kind]))] if kind in what else ["--editable", ROOT]
    with tempfile.TemporaryDirectory(prefix="headrace installed ") as folder:  # a space, too
        environment = Path(folder) / "environment"
        install(python, environment, *place)
        (Path(folder) / "work").mkdir()
        yield Installed(environment, Path(folder) / "work")


def install(python: str, environment: Path, *what: str | Path) -> None:
    """A new environment with this and its dependencies; uv only where it saves time."""
    uv = None if ALL else shutil.which("uv")
    if uv:
        quiet(uv, "venv", "--quiet", "--seed", "--python", python, environment)
        quiet(uv, "pip", "install", "--compile-bytecode", "--python", environment, *what)
    else:
        quiet(python, "-m", "venv", environment)
        quiet(environment / "bin" / "python", "-m", "pip", "install", *what)


def interpreter(version: str) -> str | None:
    """A Python of this version: ours, one on the PATH, or one of pyenv's or uv's."""
    places = [
        os.environ.get("PYENV_ROOT", "~/.pyenv") + f"/versions/{version}.*/bin/python",
        f"~/.local/share/uv/python/cpython-{version}.*/bin/python",
    ]
    found = [path for place in places for path in sorted(glob(os.path.expanduser(place)))]
    candidates = [sys.executable, shutil.which(f"python{version}") or "", *found]
    return next((python for python in candidates if python and _is(python, version)), None)


def _is(python: str, version: str) -> bool:  # a shim on the PATH may have no Python behind it
    show = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", show], check=False, capture_output=True, text=True)
    return done.stdout.strip() == version


def readme(folder: Path) -> tuple[list[str], str]:
    """Put the README's program there; its command, and what that prints."""
    found = blocks((ROOT / "README.md").read_text(encoding="utf-8"))
    program = next(b.text for b in found if b.kind == "python")
    (folder / "hot.py").write_text(program, encoding="utf-8")
    [command] = typed(next(b.text for b in found if b.kind == "console"))
    return command


def test_its_requirements_are_met(installed: Installed) -> None:
    code, printed = installed.run("python", "-m", "pip", "check")
    assert code == 0, printed


def test_every_module_imports_or_names_the_extra_it_needs(installed: Installed) -> None:
    code, printed = installed.run("python", "-W", "error", "-c", EVERY_MODULE, java=False)
    assert code == 0, printed
    assert printed.split() == [
        "headrace.server.app", "headrace.server.patience", "headrace.server.prometheus",
        "headrace.server.routes", "headrace.testing.column_values", "headrace.testing.strategies",
        "headrace_pytest",
    ]  # fmt: skip


def test_every_public_name_is_there(installed: Installed) -> None:
    assert installed.run("python", "-c", EVERY_NAME, java=False) == (0, "")


def test_version_and_help_need_no_java(installed: Installed) -> None:
    assert installed.run("headrace", "--version", java=False) == (0, "headrace 0.1.0\n")
    code, printed = installed.run("headrace", "--help", java=False)
    assert code == 0 and "headrace run job.py --until end" in printed


def test_a_run_without_java_says_how_to_install_it(installed: Installed) -> None:
    readme(installed.folder)
    code, printed = installed.run("python", "-c", WITHOUT_JAVA, java=False)
    assert code == 1 and "HR-RUN-002 Spark needs Java 17 or newer, found none\n" in printed
    assert "apt install openjdk-17-jre-headless" in printed and "Traceback" not in printed


def averages(folder: Path) -> list[tuple[object, ...]]:
    """What it wrote to "files:averages", read by DuckDB."""
    rows = duckdb.sql(
        "select area, epoch_ms(window_start) // 60_000, round(celsius, 9) "
        f"from read_parquet('{folder}/averages/*.parquet') order by all"
    )
    return rows.fetchall()


def expected() -> list[tuple[object, ...]]:
    """The same, by hand."""
    minutes: dict[tuple[str, int], list[float]] = {}
    for i in range(600):
        minutes.setdefault((f"area-{i % 3}", i // 60), []).append(20 + i % 3 * i / 20)
    return sorted((*key, round(mean(found), 9)) for key, found in minutes.items())


@pytest.mark.spark
def test_the_readmes_program_gives_what_the_readme_shows(installed: Installed) -> None:
    [program, *arguments], shown = readme(installed.folder)
    code, printed = installed.run(program, *arguments)
    assert code == 0 and matches(printed, shown), printed
    assert averages(installed.folder) == expected()
    assert "`headrace warm`" in printed.splitlines()[1]


@pytest.mark.spark
@pytest.mark.skipif(not ALL, reason="half a minute: make installed")
def test_a_class_archive_can_be_made_and_is_used(installed: Installed) -> None:
    [program, *arguments], shown = readme(installed.folder)
    for left in installed.folder.iterdir():  # of the run before
        if left.is_dir():
            shutil.rmtree(left)
    code, made = installed.run(program, "warm")
    assert code == 0 and str(installed.environment / "share" / "headrace") in made, made
    code, printed = installed.run(program, *arguments)
    assert code == 0 and matches(printed, shown) and "`headrace warm`" not in printed, printed
    assert averages(installed.folder) == expected()
