"""The memory of the processes of a run, as the system tells it; nothing where it does not.

Only /proc is asked: on a system without it everything is unknown. So is what runs on other
machines: of a cluster this is the driver's side alone.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

_PROC = Path("/proc")


def process_start(pid: int) -> int:
    """When a process began, in ticks since the machine did: with it a pid names one process for
    good. 0 where the system does not tell."""
    stat = _stat(pid)
    return int(stat[19]) if stat else 0


def resident(pid: int) -> int | None:
    """Bytes of memory that a process has."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def proportional(pid: int) -> int | None:
    """The same; what processes share, as they do after a fork, is divided among them."""
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1_024 for line in lines if line.startswith("Pss:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return resident(pid)


def descendants(pid: int) -> list[int]:
    """The processes that a process has begun, and those that they have."""
    children: dict[int, list[int]] = defaultdict(list)
    for name in os.listdir(_PROC) if _PROC.is_dir() else ():
        if name.isdigit() and (stat := _stat(int(name))):
            children[int(stat[1])].append(int(name))
    found = list(children[pid])
    for process in found:
        found += children[process]
    return found


def _stat(pid: int) -> list[str]:
    """The fields after the command, which may hold anything: state, parent …"""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return text.rpartition(")")[2].split()
