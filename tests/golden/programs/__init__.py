"""The golden programs: together they store every kind of state, and use every kind of place.

Public names only. A program must never change once a release has left a folder of it: what is
to be covered besides becomes a new program. Functions and classes count as well, and the modules
they are in: steps without a name are known by the functions before them, aggregates of one's own
by their module and class.
"""

from tests.golden.programs import (
    edges,
    graphs,
    joins,
    replays,
    sketches,
    state,
    streams,
    topologies,
    windows,
)  # fmt: skip
from tests.golden.programs.base import PROGRAMS, Program

__all__ = [
    "PROGRAMS", "Program", "edges", "graphs", "joins", "replays", "sketches", "state", "streams",
    "topologies", "windows",
]  # fmt: skip
