"""A job's folder from outside: played, packed, unpacked and described.

The one module of the golden tests that knows more than public names, and of these only how a
job is driven in this process and what a start says of each step. Files are read as what they are on
disk, by code of their own here, so that a change of their layout shows.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.clock import ManualClock
from headrace.driver.measuring import PUBLISHING
from headrace.inspect.live import NOTE
from headrace.testing import Driver
from tests.golden.feeding import BASE, BATCHES, HALF, PAUSE, begin, send
from tests.golden.programs import Program

REPLAYING = ["at", "enters", "port", "row"]  # what a dead letter has had since it can be replayed
HOME = "/golden"  # stands for the folder in which a program was run
# A step of 0.1.0 whose state is refused since, and which the program has no more; and its output.
LEFT_OUT = {
    "thinned": ("board", "board out"),  # top(each=) stored only the best, and none could come up
}
_DATE = (2024, 3, 30, 0, 0, 0)
_PASSING = (NOTE, PUBLISHING)  # notes of a job that runs, on which nothing depends
_RANDOM = re.compile(r"[0-9a-f]{8,}")  # numbers of epochs among them


class Play:
    """A program in a folder: its inputs, its outputs and the job's own folder beside them."""

    def __init__(self, program: Program, root: Path) -> None:
        self.program, self.root, self.folder = program, root, root / "job"
        self.clock = ManualClock(BASE)

    def begin(self) -> None:
        begin(self.root, self.program.inputs)

    def start(self, until: str | None = None) -> Driver:
        job = self.program.build(self.root)
        return Driver(job, self.folder, until=until, clock=self.clock, drop=self.left_out()[:1])

    def left_out(self) -> list[str]:
        """What the folder still holds of a step that the program has no more."""
        if not self._manifests():
            return []
        held = {*self.manifest()["ops"], *self.manifest()["writes"]}
        return [name for name in LEFT_OUT.get(self.program.name, ()) if name in held]

    def run(self, batches: range) -> None:
        """One start that lives as long as these batches."""
        self._wait_for(batches.start)
        driver = self.start()
        for batch in batches:
            send(self.root, self.program.inputs, batch)
            driver.drain()
            self.clock.advance(PAUSE)
            driver.drain()
        driver.close()

    def end(self) -> None:
        """Close what is open: the inputs have ended."""
        self._wait_for(BATCHES)
        driver = self.start("end")
        driver.drain()
        driver.close()

    def _wait_for(self, batch: int) -> None:
        """Let it be the time at which a batch comes."""
        self.clock.advance(BASE + PAUSE * batch - self.clock.now())

    def first_half(self) -> None:
        self.begin()
        self.run(range(HALF))

    def second_half(self) -> None:
        self.run(range(HALF, BATCHES))
        self.end()

    def whole(self) -> None:
        """Both halves in one start."""
        self.begin()
        self.run(range(BATCHES))
        self.end()

    def verdicts(self) -> dict[tuple[str, str], str]:
        """What a start says of every step, value, input and output; a refusal raises."""
        self._wait_for(HALF)
        driver = self.start()
        driver.close()
        found = driver.start.comparison
        assert found is not None, "the folder holds no manifest"
        return {(c.role, c.name): c.verdict for c in found.changes}

    def outputs(self) -> dict[str, list[str]]:
        """All rows of all outputs, sorted: batches and splits leave them in no order."""
        found = {
            name: self._output(name, facts) for name, facts in self.manifest()["writes"].items()
        }
        if (self.folder / "dead" / "_commits").exists():
            letters = hr.read_output(str(self.folder / "dead"))
            found["dead letters"] = letters.drop_columns(REPLAYING)
        return {name: sorted(map(_told, table.to_pylist())) for name, table in found.items()}

    def _output(self, name: str, facts: dict[str, Any]) -> pa.Table:
        if facts["kind"] == "collect":
            return hr.collected(str(self.folder), name)
        if facts["kind"] == "files":
            return hr.read_output(facts["place"])
        log, topic = hr.EmbeddedLog(str(self.root / "log")), Path(facts["place"]).name
        read = (log.read(topic, partition, 0) for partition in log.latest(topic))
        return pa.concat_tables([table for chunks in read for _, table in chunks])

    def manifest(self) -> dict[str, Any]:
        """The body of the newest manifest."""
        body: dict[str, Any] = unsealed(self._manifests()[-1])[1]["body"]
        return body

    def epochs(self) -> list[str]:
        return [path.name for path in self._manifests()]

    def _manifests(self) -> list[Path]:
        return sorted((self.folder / "epochs").glob("*.json"))

    def change_manifest(self, old: str, new: str) -> int:
        """Write the newest manifest with another text in it; how often it was there."""
        path = self._manifests()[-1]
        return _resealed(path, old, new)


def _told(row: dict[str, Any]) -> str:
    row = {name: _rounded(value) for name, value in row.items() if name != "traceback"}
    return json.dumps(row, default=str, sort_keys=True)


def _rounded(value: Any) -> Any:
    """The last digits of a variance are not promised."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


def unsealed(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and content of a sealed file."""
    first, _, rest = path.read_bytes().partition(b"\n")
    return json.loads(first), json.loads(rest)


def _resealed(path: Path, old: str, new: str) -> int:
    """Put `new` in the place of `old` in a sealed file, and seal it again."""
    first, _, rest = path.read_bytes().partition(b"\n")
    count = rest.count(old.encode())
    if count:
        payload = rest[:-1].replace(old.encode(), new.encode())
        header = {**json.loads(first), "bytes": len(payload), "crc32": zlib.crc32(payload)}
        head = json.dumps(header, separators=(",", ":")).encode()
        path.write_bytes(head + b"\n" + payload + b"\n")
    return count


def _move(folder: Path, old: str, new: str) -> None:
    """Sealed files name places by their whole path: let them name those of a folder that moved."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.read_bytes()[:12] == b'{"headrace":':
            _resealed(path, f'"{old}', f'"{new}')


def pack(root: Path, target: Path, **more: str) -> None:
    """All of a folder as one zip, the same bytes for the same files; `more` are files besides."""
    _move(root, str(root), HOME)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as packed:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix() + ("/" if path.is_dir() else "")
            packed.writestr(_entry(name), b"" if path.is_dir() else path.read_bytes())
        for name, text in sorted(more.items()):
            packed.writestr(_entry(f"{name}.json"), text)
    _move(root, HOME, str(root))


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def unpack(source: Path, root: Path) -> dict[str, Any]:
    """The folder as it was left, here; and what was packed besides it."""
    with zipfile.ZipFile(source) as packed:
        more = {n[:-5]: json.loads(packed.read(n)) for n in packed.namelist() if "/" not in n}
        packed.extractall(root, [n for n in packed.namelist() if "/" in n])
    _move(root, HOME, str(root))
    return more


def description(play: Play) -> dict[str, Any]:
    """All in a folder that must be the same in every release, whatever the names in the code."""
    body = play.manifest()
    ops = {
        name: {n: facts[n] for n in ("kind", "shape", "fingerprint", "version")}
        for name, facts in body["ops"].items()
    }
    return {
        "files": sorted({_kind_of(path, play.root) for path in _files(play.root)}),
        "headers": sorted({_header(path) for path in _files(play.root)} - {""}),
        "keys": sorted(body.keys() - {"measures"}),  # the folders are older; nothing depends on it
        "ops": ops,
        "facts of ops": {name: sorted(facts) for name, facts in body["ops"].items()},
        "reads": {n: _plain(facts, play.root) for n, facts in body["reads"].items()},
        "writes": {n: _plain(facts, play.root) for n, facts in body["writes"].items()},
        "splits": [{n: s[n] for n in ("id", "input", "name", "at")} for s in body["splits"]],
        "split": sorted({key for s in body["splits"] for key in s}),
        "state": {
            table: columns
            for table, runs in body["state"].items()
            if (columns := _columns(play.folder, runs))  # a table may come that holds nothing yet
        },
        "counts": body["counts"],
        "held": {name: facts["held"] for name, facts in body["ops"].items()},
        "metrics": body["metrics"],
    }


def _files(root: Path) -> Iterator[Path]:
    return (path for path in root.rglob("*") if path.is_file() and path.name not in _PASSING)


def _kind_of(path: Path, root: Path) -> str:
    """A path without numbers and without what was drawn at random."""
    name = _RANDOM.sub("*", path.relative_to(root).as_posix())
    return re.sub(r"\d+", "0", name)


def _header(path: Path) -> str:
    first = path.read_bytes().partition(b"\n")[0]
    if not first.startswith(b'{"headrace":'):
        return ""
    header = json.loads(first)
    return f"{header['headrace']} {header['format']} {sorted(header)}"


def _plain(facts: dict[str, Any], root: Path) -> dict[str, Any]:
    """What is known of an input or output, without where it is and when it was made."""
    text = json.dumps(facts).replace(str(root), HOME)
    made: dict[str, Any] = json.loads(_RANDOM.sub("*", text))
    return made


def _columns(folder: Path, runs: Any) -> list[str]:
    """The columns of a table of state, from the files themselves."""
    found = Counter[str]()
    for file, offset, length, *_ in _references(runs):
        (path,) = folder.rglob(file)
        with path.open("rb") as opened:
            opened.seek(offset)
            block = opened.read(length)
        schema = pa.ipc.open_stream(io.BytesIO(block)).schema
        found[", ".join(f"{f.name} {f.type}" for f in schema)] += 1
    return sorted(found)


def _references(value: Any) -> Iterator[list[Any]]:
    """The references to runs in the state of a table: lists that begin with a file's name."""
    if (
        isinstance(value, list)
        and value
        and isinstance(value[0], str)
        and value[0].endswith(".run")
    ):
        yield value
    elif isinstance(value, list | dict):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _references(inner)
