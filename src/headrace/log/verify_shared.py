"""What the topics of a log share: transactions, consumer groups, what was left half made."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from headrace.errors import LogError
from headrace.files import irregular, size
from headrace.log import topic as topics
from headrace.log.consumer_groups import GroupFiles, group_names
from headrace.log.lock import PATIENCE
from headrace.log.transactions import FOLDER as TRANSACTIONS
from headrace.log.transactions import check_committed
from headrace.log.verify import Flaw, Tick


def verify_shared(root: Path, tick: Tick) -> Iterator[Flaw]:
    """What is wrong in a log besides its topics; changes nothing."""
    yield from _transactions(root / TRANSACTIONS, tick)
    for name in group_names(root):
        group = GroupFiles(root, name, PATIENCE)
        for file, read in (("members", group.membership), ("offsets", group.offsets)):
            path = group.folder / file
            if not path.exists() and not path.is_symlink():
                continue
            tick(path)
            try:
                read()
            except LogError as error:
                wrong = irregular(path) or error.message
                yield Flaw(path, wrong, f"consumer group {name!r} cannot go on", True)
    for name in topics.abandoned(root):
        taken = sum(p.stat().st_size for p in (root / name).rglob("*") if p.is_file())
        wrong = "a topic that was being made, or removed, when its process died"
        yield Flaw(
            root / name, wrong, f"nothing: it takes {size(taken)}", False, mended="removed",
            mend=partial(topics.clear_abandoned, root),
        )  # fmt: skip


def _transactions(folder: Path, tick: Tick) -> Iterator[Flaw]:
    for name in ("pending", "last"):
        path = folder / name
        if not path.exists() and not path.is_symlink():
            continue
        tick(path)
        try:
            check_committed(path)
        except LogError as error:
            means = "no transaction can be committed" + (
                ", and its topics cannot be read" if name == "pending" else ""
            )
            wrong = irregular(path) or error.message
            where = path if "records of a transaction" not in wrong else _records(folder, path)
            yield Flaw(where, wrong, means, True)


def _records(folder: Path, path: Path) -> Path:
    found = sorted(n for n in os.listdir(folder) if n.endswith(".records"))
    return folder / found[-1] if found else path
