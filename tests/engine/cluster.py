"""A Spark cluster on this machine's loopback: one master, one worker, free ports.

It is the standalone cluster that PySpark brings along. Both are JVMs of their own, and so is
every executor that the worker starts.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyspark

from headrace.engine import archive
from headrace.engine.java import find_java

SPARK_CLASS = Path(pyspark.__file__).with_name("bin") / "spark-class"
VARIABLE = "HEADRACE_SECRET_FILE"
SECRET = "a secret that this machine's clusters have"
SECURE = f"""spark.authenticate true
spark.authenticate.secret {SECRET}
spark.network.crypto.enabled true
spark.network.crypto.authEngineVersion 2
"""
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    """What a machine of the cluster knows: nothing of a driver, or of a Spark in this process."""
    find_java()
    ours = ("HEADRACE_", "PYSPARK_", "SPARK_")
    known = {k: v for k, v in os.environ.items() if k == VARIABLE or not k.startswith(ours)}
    options = f"{QUICK} {archive.options()}"
    return {
        **known, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options, "SPARK_LAUNCHER_OPTS": QUICK,
    }  # fmt: skip


@contextmanager
def cluster(place: Path, cores: int = 2) -> Iterator[str]:
    """The address of a cluster that ends with the block; its worker keeps its files in `place`.

    While it lasts, HEADRACE_SECRET_FILE names a file with its secret.
    """
    size = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(place)]
    with master() as address, _daemon("worker.Worker", SECURE, *size, address) as told:
        _said(told, r"Successfully registered with master (\S+)")
        yield address


@contextmanager
def master(configuration: str = SECURE) -> Iterator[str]:
    """The address of a master without workers."""
    with _daemon("master.Master", configuration) as told, secret_file():
        yield _said(told, r"Starting Spark master at (spark://\S+)")


@contextmanager
def secret_file(secret: str = SECRET) -> Iterator[None]:
    """What a driver reads the secret from."""
    before = os.environ.get(VARIABLE)
    with tempfile.NamedTemporaryFile("w") as file:  # 0600
        file.write(f"{secret}\n")
        file.flush()
        os.environ[VARIABLE] = file.name
        try:
            yield
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before


def executors(place: Path) -> list[int]:
    """The processes that the worker with its files in `place` has started for others' work."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            works_there = (entry / "cwd").readlink().is_relative_to(place)
            if works_there and (entry / "comm").read_text().strip() == "java":
                found.append(int(entry.name))
    return found


@contextmanager
def _daemon(name: str, configuration: str, *words: str) -> Iterator[IO[str]]:
    loopback = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with (
        tempfile.NamedTemporaryFile("r") as told, open(told.name, "w") as writing,
        tempfile.NamedTemporaryFile("w") as properties,
    ):  # fmt: skip
        properties.write(configuration)
        properties.flush()
        command = [
            str(SPARK_CLASS), f"org.apache.spark.deploy.{name}", *loopback,
            "--properties-file", properties.name, *words,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, stdout=writing, stderr=writing, env=environment(), start_new_session=True
        )
        try:
            yield told
        finally:
            process.terminate()
            process.wait(timeout=60)


def _said(told: IO[str], pattern: str, within: float = 120) -> str:
    """What a daemon says of itself, as soon as it does."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        told.seek(0)
        if found := re.search(pattern, text := told.read()):
            return found[1]
        time.sleep(0.05)
    raise AssertionError(text)
