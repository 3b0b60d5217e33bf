"""The jars of a Kafka broker: fetched once from Maven Central, each checked by its SHA-256.

`jars.txt` lists them, as Maven resolves org.apache.kafka:kafka_2.13:4.3.1 with slf4j-simple. What
Maven itself has fetched before (~/.m2) is copied, so that a machine without a network will do.
`connector.txt` lists Spark's own connector, which only the benchmarks run, in the same way: the
newest that is published, since there is none for Spark 4.3.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

ROOT = Path(__file__).resolve().parents[2]
VERSION = "4.3.1"
CENTRAL = "https://repo.maven.apache.org/maven2"  # what Maven asks unless it is configured
AT_ONCE = 8
TIMEOUT = 60  # seconds


def jars() -> Path:
    """The folder with all jars, complete; OSError if one of them cannot be had."""
    folder = Path(os.environ.get("HEADRACE_KAFKA_JARS", ROOT / ".headrace" / f"kafka-{VERSION}"))
    _complete(folder, "jars.txt")
    return folder


def connector_jars() -> list[Path]:
    """Spark's own Kafka connector, for the benchmarks; OSError if it cannot be had."""
    return _complete(ROOT / ".headrace" / "kafka-connector", "connector.txt")


def _complete(folder: Path, list_name: str) -> list[Path]:
    listed = _listed(list_name)
    missing = [(sum, path) for sum, path in listed if not (folder / Path(path).name).exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda jar: _fetch(*jar, folder), missing))
    return [folder / Path(path).name for _, path in listed]


def _listed(name: str) -> list[tuple[str, str]]:
    lines = (Path(__file__).parent / name).read_text().splitlines()
    return [(sum, path) for sum, path in map(str.split, lines)]


def _fetch(sum: str, path: str, folder: Path) -> None:
    """Put one jar into the folder, whole or not at all."""
    new = folder / f"{Path(path).name}.{os.getpid()}"
    try:
        local = Path.home() / ".m2" / "repository" / path
        if local.exists():
            shutil.copyfile(local, new)
        if not new.exists() or _sum(new) != sum:
            with (
                urlopen(f"{_repository()}/{path}", timeout=TIMEOUT) as answer,
                new.open("wb") as to,
            ):
                shutil.copyfileobj(answer, to)
        if _sum(new) != sum:
            raise OSError(f"{path} is not the file that tools/kafka lists")
        new.replace(folder / Path(path).name)
    finally:
        new.unlink(missing_ok=True)


def _repository() -> str:
    return os.environ.get("HEADRACE_MAVEN_REPOSITORY", CENTRAL).rstrip("/")


def _sum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
