"""A driver that is stopped and let go after another took over changes nothing; here of files that
are merged after as many epochs as in real life. The suite of all outputs stops them anywhere.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sinks.writing import files

from headrace.sinks import merging, output_files
from headrace.testing.output_drivers import SharedFolder, Stopped


def nothing_is_left_over(out: Path) -> None:
    """What a reader that globs sees is what counts, and nothing is hidden for ever."""
    shown = {p for p in out.glob("**/*.*") if not p.is_dir() and not _hidden(p, out)}
    assert shown == set(output_files(out))
    shown = {p.name for p in shown}
    assert not list(out.glob("_staging/*/merged-*"))
    sidecars = {p.name.removesuffix(".rows") for p in out.glob("_commits/*.rows")}
    assert sidecars == {name for name in shown if name.startswith("merged-")}


def _hidden(path: Path, out: Path) -> bool:
    return any(part[0] in "._" for part in path.relative_to(out).parts)


@pytest.mark.parametrize("epochs", [0, 1, 17])
def test_so_it_is_with_the_real_numbers(tmp_path_factory, hasty, epochs):
    old = merging.EVERY + 1
    calm = Stopped(SharedFolder(files(tmp_path_factory.mktemp("calm"))), None, 0, old)
    calm.run()
    first = calm.passed.index("sink.merge.written")
    assert "sink.merge.renamed" in calm.passed
    for at in range(first - 3, len(calm.passed) + 1, 4):
        folder = SharedFolder(files(tmp_path_factory.mktemp("two")))
        pair = Stopped(folder, at, epochs, old)
        pair.run()
        assert pair.newer is not None
        folder.agree()
