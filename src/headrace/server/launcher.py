"""The parent of a job's process: a small program of its own, which outlives the server.

    python -I launcher.py RUN_FOLDER

It leads a session of its own, says in `process.json` who it is, runs the command of `order.json`
with its output in `log.txt`, and notes in `exit.json` how that has ended. The environment, which
may hold passwords, is passed on and never written. Only Python's standard library is imported, and
nothing of Headrace: it takes a few megabytes and a tenth of a second.

`process.json` is made exclusively. Whoever is second does nothing: a run is launched once, and a
server that finds none where one was to be may make it, and so call the launch off.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

ORDER, PROCESS, EXIT, ERROR, LOG = "order.json", "process.json", "exit.json", "error.json", "log"
_BLOCK = 1 << 16
_LAST_WORDS = 5.0  # seconds
_SHOWN = 2  # parts of the log that are stored: the newest, and the one before


def main(folder: Path) -> None:
    order = json.loads((folder / ORDER).read_text(encoding="utf-8"))
    (folder / ORDER).unlink()
    asked = list[int]()
    child: subprocess.Popen[bytes] | None = None

    def stop(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    if not claim(folder, {"pid": os.getpid(), "start": start_of(os.getpid())}):
        return
    try:
        child = subprocess.Popen(
            order["command"], cwd=order["cwd"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    except OSError as error:
        note(folder, 1, asked, f"it cannot be started: {error}")
        return
    if asked:
        child.send_signal(signal.SIGTERM)
    assert child.stdout is not None
    what = (child.stdout, folder, int(order["log_bytes"]))
    copying = threading.Thread(target=copy, args=what, daemon=True)
    copying.start()
    code = child.wait()
    copying.join(_LAST_WORDS)  # somebody else of the session may hold the pipe open
    note(folder, code, asked)


def claim(folder: Path, who: dict[str, Any]) -> bool:
    """Make `process.json`, whole; False if there is one."""
    fresh = folder / f".new-{os.getpid()}"
    fresh.write_text(json.dumps(who), encoding="utf-8")
    try:
        os.link(fresh, folder / PROCESS)
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def copy(stream: BinaryIO, folder: Path, most: int) -> None:
    """What the command prints, to its end, into parts of half the size that is allowed; a part is
    named after its first byte. Where the disk is full, what is printed is lost, and the job goes
    on."""
    at, part_at = 0, 0
    path = folder / f"{LOG}.txt"
    while data := os.read(stream.fileno(), _BLOCK):
        if at - part_at >= most // 2:
            part_at = at
            path = folder / f"{LOG}.{at}.txt"
            for old in parts(folder)[: -(_SHOWN - 1)]:
                old[1].unlink(missing_ok=True)
        with suppress(OSError), path.open("ab") as file:
            file.write(data)
        at += len(data)


def parts(folder: Path) -> list[tuple[int, Path]]:
    """The parts of the log that there are, each with the number of its first byte."""
    found = [(0, folder / f"{LOG}.txt")] if (folder / f"{LOG}.txt").exists() else []
    for path in folder.glob(f"{LOG}.*.txt"):
        number = path.name.split(".")[1]
        found += [(int(number), path)] if number.isdecimal() else []
    return sorted(found)


def note(folder: Path, code: int, asked: list[int], text: str | None = None) -> None:
    """How the command has ended: the exit code, or minus the signal that has killed it."""
    error: dict[str, Any] | None = None if text is None else {"code": None, "text": text}
    with suppress(OSError, ValueError):
        error = json.loads((folder / ERROR).read_text(encoding="utf-8"))
    facts = {"code": code, "asked": bool(asked), "error": error, "ended": int(time.time() * 1000)}
    fresh = folder / f".new-{os.getpid()}"
    with fresh.open("w", encoding="utf-8") as file:
        json.dump(facts, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(folder / EXIT)


def start_of(pid: int) -> str | None:
    """When a process has started, in words that no other process of that number ever has; None
    if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _asked_start(pid)
    return None if fields[0] in "ZX" else f"{boot} {fields[19]}"


def _asked_start(pid: int) -> str | None:
    """The same where there is no /proc."""
    asked = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.split(
        None, 1
    )
    return answer[1].strip() if len(answer) == 2 and not answer[0].startswith("Z") else None


if __name__ == "__main__":
    main(Path(sys.argv[1]))
