"""Running a Bytewax dataflow as a contender, in an environment of its own and two processes.

The environment is made when it is missing; Bytewax may not be there for every Python, so
others on the machine are tried. Measured is from the first row read to the last one written:
what comes before and after is the start and the end of processes.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.data import CACHE, ROOT
from bench.measure import environment

PROCESSES = 2
_PACKAGES = ("bytewax[kafka]==0.21.1", "pyarrow>=17")
_HOME = CACHE / "bytewax-venv"
_PYTHON = _HOME / "bin" / "python"
_VERSIONS = ("3.12", "3.11", "3.10")  # for which it is published, newest first


def missing(kafka: bool = False) -> str | None:
    """Why Bytewax, or its connector to Kafka, cannot be had, after trying; None if it is there."""
    if there(kafka):
        return None
    tried = []
    for name, commands in _ways():
        shutil.rmtree(_HOME, ignore_errors=True)
        why = next(filter(None, map(_fails, commands)), None)
        if why is None and there(kafka):
            return None
        tried.append(f"{name}: {why or 'does not import'}")
    return "; ".join(tried) or "no Python for which it is published"


def _ways() -> Iterator[tuple[str, list[list[str]]]]:
    """How to make the environment: what is tried, and the commands."""
    if uv := shutil.which("uv"):
        for version in _VERSIONS:
            make = [uv, "venv", "--quiet", "--python", version, str(_HOME)]
            install = [uv, "pip", "install", "--quiet", "--python", str(_PYTHON), *_PACKAGES]
            yield f"uv with Python {version}", [make, install]
    known = [sys.executable, *(shutil.which(f"python{version}") for version in _VERSIONS)]
    for python in dict.fromkeys(filter(None, known)):
        make = [python, "-m", "venv", str(_HOME)]
        install = [str(_PYTHON), "-m", "pip", "install", "--quiet", *_PACKAGES]
        yield python, [make, install]


def _fails(command: list[str]) -> str | None:
    """The last line of what a command said, if it failed."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if not done.returncode:
        return None
    return (done.stderr.strip() or done.stdout.strip() or "failed").splitlines()[-1]


def there(kafka: bool = False) -> bool:
    """Whether the environment is there already."""
    module = "bytewax.connectors.kafka" if kafka else "bytewax"
    return _PYTHON.exists() and _fails([str(_PYTHON), "-c", f"import {module}, pyarrow"]) is None


def drain(flow: str, folder: str, place: Path, **about: Any) -> dict[str, Any]:
    """Run the flow over all files in the folder."""
    return run(flow, place, _rows(folder), {"folder": folder, **about})


def run(flow: str, place: Path, rows: int, about: Mapping[str, Any]) -> dict[str, Any]:
    """Run the flow, which reads so many rows in all."""
    told = {**about, "place": str(place)}
    environ = {**environment(), "BENCH_FLOW": json.dumps(told)}
    addresses = ";".join(f"127.0.0.1:{port}" for port in _free_ports(PROCESSES))
    command = [str(_PYTHON), "-m", "bytewax.run", flow, "-a", addresses, "-i"]
    running = [
        subprocess.Popen([*command, str(number)], cwd=ROOT, env=environ)
        for number in range(PROCESSES)
    ]
    codes = [process.wait() for process in running]
    if any(codes):
        raise RuntimeError(f"Bytewax ended with {codes}")
    return _figures(place, rows)


def _figures(place: Path, rows: int) -> dict[str, Any]:
    began, ended = (
        [float(path.read_text()) for path in place.glob(f"{name}-*.stamp")]
        for name in ("began", "ended")
    )
    seconds = max(ended) - min(began)
    batch = [rows, int(min(began) * 1_000), int(max(ended) * 1_000)]
    return {"batches": [batch], "rate": rows / seconds}


def _rows(folder: str) -> int:
    import pyarrow.parquet as pq

    return sum(pq.read_metadata(path).num_rows for path in Path(folder).glob("*.parquet"))


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in held]
    for server in held:
        server.close()
    return ports
