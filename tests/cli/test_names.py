"""A job may be called what it likes: its folder comes behind Python's standard library."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.loading import load_job
from headrace.errors import RunError

JOB = """
import headrace as hr
import neighbour

def plus(row):
    return {"a": neighbour.plus(row.a)}

job = hr.Job("named")
job.read(hr.rows([{"a": 1}], "a bigint"), name="in").map(plus, schema="a bigint").write("console:")
"""
NEIGHBOUR = "def plus(n):\n    return n + 41\n"
NAMES = sorted(n for n in sys.stdlib_module_names if importlib.util.find_spec(n) is not None)


@pytest.mark.spark
def test_a_job_runs_whatever_module_its_folder_seems_to_replace(tmp_path: Path) -> None:
    """Beside the job are files named like all of the standard library: nobody imports them."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken for another')\n")
    (tmp_path / "copy.py").write_text(JOB)
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    command = Path(sys.executable).with_name("headrace")
    done = subprocess.run(
        [command, "run", "copy.py", "--until", "end", "--master", "local[1]"], cwd=tmp_path,
        check=False, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "in.write: a=42\n"), done.stderr


def test_a_job_named_like_any_module_of_python_is_found(tmp_path: Path) -> None:
    """In a process of its own: a job's module stays."""
    (tmp_path / "neighbour.py").write_text(NEIGHBOUR)
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(JOB.replace('"named"', f'"{name}"'))
    program = """
import importlib, sys
from pathlib import Path
from headrace.cli.loading import load_job
folder = Path(sys.argv[1])
for file in sorted(folder.glob("*.py")):
    if file.stem != "neighbour":
        assert load_job(file).name == file.stem
for name in ("copy", "calendar", "types", "queue", "sched", "chunk", "this", "uu", "mailbox"):
    if name in sys.stdlib_module_names and name != "this":
        found = importlib.import_module(name).__file__
        assert Path(found).parent != folder, found
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "name", ["numpy.py", "duckdb.py", "pyspark/__init__.py", "headrace.py", "winreg.py"]
)
def test_a_file_that_would_replace_what_a_job_needs_is_refused_by_name(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("")
    (tmp_path / "job.py").write_text('import headrace as hr\njob = hr.Job("j")\n')
    with pytest.raises(RunError) as caught:
        load_job(tmp_path / "job.py")
    assert caught.value.code == "HR-CLI-006" and repr(name) in str(caught.value)


@pytest.mark.parametrize("wanted", ["from queue import mine", "import queue\nqueue.mine()"])
def test_a_job_that_wants_its_neighbour_and_finds_pythons_module_is_told_so(
    tmp_path: Path, wanted: str
) -> None:
    (tmp_path / "queue.py").write_text("def mine(): ...\n")
    (tmp_path / "wanting.py").write_text(wanted)
    with pytest.raises(RunError) as caught:
        load_job(tmp_path / "wanting.py")
    assert caught.value.code == "HR-CLI-004" and "queue.py beside the job" in str(caught.value)
