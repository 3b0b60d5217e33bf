"""Leave the folders of a release: `python -m tests.golden.write`, once for each release.

Each program is run over the first half of its input, and all it has left is packed, beside what
its outputs hold when it goes on to the end. What is there is never written again, unless
`--again` is said: a folder that was left cannot be left differently. What is drawn at random is
drawn from a seed, so that the same code gives the same bytes.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import headrace as hr
from tests.golden.programs import PROGRAMS, Program
from tests.golden.reading import Play, pack

FOLDERS = Path(__file__).parent / "folders"


@contextmanager
def seeded(seed: str) -> Iterator[None]:
    """Names that are random elsewhere, and figures of this machine, as everywhere."""
    source = random.Random(seed)
    with (
        patch("uuid.uuid4", lambda: uuid.UUID(int=source.getrandbits(128), version=4)),
        patch("secrets.token_hex", lambda count: f"{source.getrandbits(8 * count):0{2 * count}x}"),
        patch("socket.gethostname", lambda: "golden"),
        patch("os.getpid", lambda: 1),
        patch("sys.argv", ["golden"]),
        patch("sys.orig_argv", ["golden"]),
        patch("time.time_ns", lambda: 1_711_756_800_000_000_000),
        patch("time.perf_counter", lambda: 0.0),
    ):
        yield


def write(program: Program, target: Path) -> None:
    with tempfile.TemporaryDirectory() as name, seeded(program.name):
        whole = Play(program, Path(name, "whole"))
        whole.whole()
        half = Play(program, Path(name, "half"))
        half.first_half()
        made = {"headrace": hr.__version__, "python": list(sys.version_info[:2]),
                "machine": platform.system()}  # fmt: skip
        outputs = json.dumps(whole.outputs(), indent=0)
        pack(half.root, target, outputs=outputs, made=json.dumps(made))


def main() -> None:
    said = argparse.ArgumentParser(prog="python -m tests.golden.write")
    said.add_argument("names", nargs="*", help="programs; all that are not there if left out")
    said.add_argument("--again", action="store_true", help="write what is there once more")
    given = said.parse_args()
    folder = FOLDERS / hr.__version__
    folder.mkdir(parents=True, exist_ok=True)
    for name in given.names or PROGRAMS:
        target = folder / f"{name}.zip"
        if given.again or not target.exists():
            write(PROGRAMS[name], target)
            print(f"{target.relative_to(FOLDERS)}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
