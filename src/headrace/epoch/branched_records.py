"""Records that take several branches: their fates, reported by several tasks, brought together.

A record that a step passes on (`lookup`, `deduplicate` and the like) and that takes another branch
as well is used if any of its branches uses it. No task sees all of them. So the source names the
records that it counted as used and that such a step got, the tasks behind name those that they
used and those that were late, and the driver, which has all reports of an epoch, corrects.

Records are named by their offsets, packed: sorted, as differences, compressed.
"""

from __future__ import annotations

import base64
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.chunk import SOURCE
from headrace.epoch.accounting import NOWHERE, Passed, by_split, leads_only_to, passes_on, places
from headrace.epoch.values import Epoch
from headrace.ops.contract import EpochStep
from headrace.plan.nodes import OUT, Stateful, Write
from headrace.plan.program import Program

Offsets = npt.NDArray[np.int64]
Note = tuple[str, str, str, str]  # input, split, fate, offsets

# What the source counted as used and a step got that passes rows on:
OPEN = "open"  # nothing else has used it
SURE = "sure"  # something else has


def may_branch(program: Program, name: str) -> bool:
    """Whether a record of input `name` may be passed on by a step that is not its only branch."""
    return any(
        not leads_only_to(program, name, step) or _has_side(program, step)
        for step in _passing(program, name)
    )


def followed_splits(program: Program, epoch: Epoch) -> dict[int, tuple[str, str]]:
    """Input and name of the splits whose records are named, by the split's id."""
    several = {n.name for n in program.sources() if may_branch(program, n.name)}
    return {s.id: (s.input, s.name) for s in epoch.splits if s.input in several}


def _passing(program: Program, name: str) -> Iterator[str]:
    """The steps that pass on what comes from `name`, as far as nothing is made of it."""
    pending, seen = [name], set()
    while pending:
        node = program.nodes[pending.pop()]
        if passes_on(node):
            yield node.name
        elif isinstance(node, Stateful):
            continue
        ports = [OUT, *(node.sides if passes_on(node) else ())]
        for consumer, _ in [
            entry for port in ports for entry in program.consumers_of(node.name, port)
        ]:
            if consumer not in seen:
                seen.add(consumer)
                pending.append(consumer)


def _has_side(program: Program, step: str) -> bool:
    return any(program.consumers_of(step, port) for port in program.nodes[step].sides)


def may_be_dropped(program: Program, step: str) -> bool:
    """Whether rows that `step` passes on can be left out, or be late, before they are used."""
    if not passes_on(program.nodes[step]):
        return False
    consumers = [program.nodes[consumer] for consumer, _ in program.consumers_of(step, OUT)]
    return not consumers or not all(isinstance(node, Write) for node in consumers)


def single_path_corrections(
    program: Program, step: str, splits: Counter[int], fate: str, epoch: Epoch
) -> dict[str, Counter[str]]:
    """By input, for records that counted as used until `step` got them, or passed them on.

    Only where a record leads to one row, and that row nowhere else: the others are named.
    """
    named = followed_splits(program, epoch)
    inputs = {s.id: s.input for s in epoch.splits if s.id not in named}
    corrections: dict[str, Counter[str]] = {}
    for split, count in splits.items():
        name = inputs.get(split) if count else None
        if name is not None and leads_only_to(program, name, step):
            corrections.setdefault(name, Counter()).update({"used": -count, fate: count})
    return corrections


def filter_corrections(
    program: Program, step: str, rows: pa.Table, epoch: Epoch
) -> dict[str, Counter[str]]:
    """Corrections by input for records that counted as used until `step` left them out."""
    if SOURCE not in rows.column_names:
        return {}
    return single_path_corrections(program, step, by_split(places(rows)), "filtered", epoch)


def pack_offsets(offsets: Offsets) -> str:
    steps = np.diff(np.unique(offsets), prepend=0)
    return base64.b64encode(zlib.compress(steps.astype("<i8").tobytes(), 1)).decode()


def unpack_offsets(text: str) -> Offsets:
    steps = np.frombuffer(zlib.decompress(base64.b64decode(text)), "<i8")
    return np.cumsum(steps, dtype=np.int64)


def fates_of_passed(passed: Passed, splits: Mapping[int, tuple[str, str]]) -> Iterator[Note]:
    """The records of these splits that were used, or late, behind the step that passed them on."""
    for fate in ("used", "late"):
        rows = passed.met(fate)
        for split, where in splits.items():
            if (of_split := rows["split"] == split).any():
                yield *where, fate, pack_offsets(rows["offset"][of_split])


def records_in_state(step: EpochStep, splits: Mapping[int, tuple[str, str]]) -> Iterator[Note]:
    """The records that a step received and did not emit: state has them for a later epoch."""
    received, emitted = _places(step.inputs), _places([*step.out, *step.filtered])
    for split, where in splits.items():
        offsets = received["offset"][received["split"] == split]
        stored = _without(offsets, emitted["offset"][emitted["split"] == split])
        if len(stored):
            yield *where, "used", pack_offsets(stored)


def _places(tables: Iterable[pa.Table | None]) -> np.ndarray:
    parts = [places(rows) for rows in tables if rows is not None and SOURCE in rows.column_names]
    return np.concatenate([NOWHERE, *parts])


def branch_corrections(
    notes: Iterable[Sequence[str]], dead: Iterable[tuple[str, str, int]]
) -> Iterator[tuple[str, Counter[str]]]:
    """By input, what the counts of the sources are changed by."""
    records: dict[tuple[str, str], dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for input, split, fate, offsets in notes:
        records[input, split][fate].append(unpack_offsets(offsets))
    for input, split, offset in dead if records else ():
        if (input, split) in records:
            records[input, split]["dead"].append([offset])
    for (input, _), by_fate in records.items():
        met = {fate: np.concatenate(parts) for fate, parts in by_fate.items()}
        yield input, _correction(met)


def _correction(met: dict[str, Offsets]) -> Counter[str]:
    none = np.zeros(0, np.int64)
    left = {fate: _without(met.get(fate, none), met.get("dead", none)) for fate in (OPEN, SURE)}
    late = met.get("late", none)
    on_time = {fate: _without(offsets, late) for fate, offsets in left.items()}
    filtered = len(_without(on_time[OPEN], met.get("used", none)))
    behind = sum(len(left[fate]) - len(on_time[fate]) for fate in left)
    return Counter({"used": -filtered - behind, "filtered": filtered, "late": behind})


def _without(offsets: Offsets, others: Offsets) -> Offsets:
    return offsets[~np.isin(offsets, others)] if len(others) else offsets
