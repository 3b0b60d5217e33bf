"""What inputs have stored in the job's folder, and the topics of the log that they read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headrace.doctor.finding import FROM_BACKUP, Finding
from headrace.doctor.job_files import JobFacts, wrong_of
from headrace.errors import HeadraceError, StateError
from headrace.files import irregular, put_away, unusable
from headrace.log.verify import Flaw, VerifiedTopic, is_topic, verify
from headrace.sources import received, spouts, stored_rows
from headrace.sources.file_splits import split_number
from headrace.sources.listing import Listing
from headrace.sources.open import home_of
from headrace.sources.spark_rows import FOLDER as SPARK
from headrace.sources.spark_rows import SparkRows
from headrace.state import sealed
from headrace.state.manifest import Manifest

_TOPICS = (received.TOPIC, stored_rows.TOPIC, spouts.TOPIC)
_LIST, _START = "files", "first-start"
_LOCKS = ("receiving", "storing", "advancing")
_AGAIN = (
    f"{FROM_BACKUP}; without, start with a new folder, which reads again what inputs still have"
)


def check_inputs(job: JobFacts) -> Iterator[Finding]:
    """By input: what it has stored, and what it reads of the log."""
    homes = {home_of(str(job.folder), f.id): name for name, f in job.newest.reads.items()}
    for folder in _folders(job.folder / "inputs"):
        homes.setdefault(folder, folder.name)
    for home, name in sorted(homes.items()):
        facts = job.newest.reads.get(name)
        kind = str(facts.about.get("kind")) if facts is not None else ""
        yield from _home(job, home, name, kind)
        if kind == "log" and facts is not None:
            yield from _log(job, name, facts.about)


def _folders(place: Path) -> list[Path]:
    return [p for p in place.iterdir() if p.is_dir()] if place.is_dir() else []


def offsets(manifest: Manifest, name: str) -> dict[str, Any]:
    """By split: from where the input goes on."""
    return {s.name: s.at for s in manifest.splits if s.input == name}


def _home(job: JobFacts, home: Path, name: str, kind: str) -> Iterator[Finding]:
    at = offsets(job.newest, name)
    read = any(isinstance(o, int) and o for o in at.values())
    listed = home / _LIST
    if kind == "files" and (listed.exists() or listed.is_symlink() or read):
        yield from _list(job, listed, name, at)
    start = home / _START
    if start.exists() or start.is_symlink() or (kind == "generate" and _has_rate(job, name, read)):
        yield from _sealed(job, start, _START, name)
    for topic in _TOPICS:
        if (home / topic).exists():
            facts = verify(home / topic, job.look)
            yield from read_findings(job, facts, name, _AGAIN)
            yield from _reached(job, facts, name)
            if facts.head is not None and facts.topic is not None:
                job.stored[name] = facts.head.earliest
        elif topic == received.TOPIC and kind in ("socket", "http", "sse", "mqtt") and read:
            means = f"what input {name!r} has received, which is not sent again"
            yield Finding(home / topic, "it is missing", means, starts=False, do=_AGAIN)
    if (home / SPARK).is_dir():
        yield from _spark(job, SparkRows(home), name)
    for path in sorted(home.iterdir()) if home.is_dir() else []:
        yield from _other(job, path, name)


def _has_rate(job: JobFacts, name: str, read: bool) -> bool:
    return read and "rows a second" in str(job.newest.reads[name].about.get("thing"))


def _list(job: JobFacts, path: Path, name: str, at: Mapping[str, Any]) -> Iterator[Finding]:
    job.look(path)
    means = f"which files input {name!r} has read, and how far"
    try:
        listing = Listing(path)
        for split, offset in at.items():
            listing.check(offset, split_number(split))
    except (HeadraceError, ValueError, TypeError, OSError) as error:
        wrong = wrong_of(path, error) if isinstance(error, HeadraceError) else str(error)
        if irregular(path) == "it is missing":
            wrong = "it is missing"
        yield Finding(path, wrong, means, starts=False, do=_AGAIN, epochs=frozenset(job.manifests))
        return
    if path.is_file() and (torn := _torn(path)) and not job.runs:
        yield Finding(
            path, f"it ends with {torn} bytes of a line that was not finished",
            "nothing: it never counted, and the next start cuts it off", harm=False,
            repair="cut off", mend=partial(_cut, path),
        )  # fmt: skip


def _torn(path: Path) -> int:
    content = path.read_bytes()
    return len(content) - (content.rfind(b"\n") + 1)


def _cut(path: Path) -> None:
    import os

    os.truncate(path, path.stat().st_size - _torn(path))


def _sealed(job: JobFacts, path: Path, kind: str, name: str) -> Iterator[Finding]:
    job.look(path)
    try:
        sealed.read_sealed(path, kind)
    except StateError as error:
        means = f"what input {name!r} has to remember to go on"
        yield Finding(path, wrong_of(path, error), means, starts=False, do=_AGAIN,
                      epochs=frozenset(job.manifests))  # fmt: skip


def _other(job: JobFacts, path: Path, name: str) -> Iterator[Finding]:
    """Locks, and small files of inputs that say themselves what they are."""
    if path.name in _LOCKS:
        if wrong := unusable(path):
            means = f"nothing can be stored for input {name!r}"
            yield Finding(path, wrong, means, starts=False, repair="made again, empty",
                          mend=partial(put_away, path))  # fmt: skip
        return
    if path.name in (_LIST, _START) or not path.name.endswith(".json"):
        return
    job.look(path)
    try:
        head = path.read_bytes()[:12] if not irregular(path) else b""
        if irregular(path) or head == b'{"headrace":':
            sealed.read_sealed(path, sealed.kind_of(path))
        else:
            json.loads(path.read_bytes())
    except (StateError, ValueError) as error:
        wrong = wrong_of(path, error) if isinstance(error, StateError) else "it is no JSON"
        means = f"what input {name!r} has to remember to go on"
        yield Finding(path, wrong, means, starts=False, do=_AGAIN, epochs=frozenset(job.manifests))


def _spark(job: JobFacts, stored: SparkRows, name: str) -> Iterator[Finding]:
    means = f"rows that Spark has read for input {name!r}, which it does not read again"
    try:
        batches = stored.batches()
        job.stored[name] = (stored.start,)
    except HeadraceError as error:
        path = stored.folder
        yield Finding(path, wrong_of(path, error), means, starts=False, do=_AGAIN)
        return
    for file in (f for batch in batches for f in batch.files):
        path = stored.rows / file.file
        job.look(path)
        try:
            for _ in stored.read((file,), file.start, file.start + file.rows):
                pass
        except HeadraceError as error:
            if path.exists() or not job.runs:
                yield Finding(path, wrong_of(path, error), means, starts=False, do=_AGAIN)


# Topics.


def read_findings(
    job: JobFacts, facts: VerifiedTopic, name: str, do: str = ""
) -> Iterator[Finding]:
    """What is wrong with a topic that an input reads, and which epochs need what is lost."""
    for flaw in facts.flaws:
        needed = frozenset(e for e, m in job.manifests.items() if _needs(flaw, offsets(m, name)))
        found = finding_of(flaw, f"input {name!r}: {flaw.means}", do)
        harm = flaw.harm and flaw.reads
        yield replace(
            found, starts=not harm or job.newest.epoch not in needed,
            epochs=needed if harm and not flaw.mended else frozenset(),
        )  # fmt: skip


def _needs(flaw: Flaw, at: Mapping[str, Any]) -> bool:
    """Whether whoever goes on from these offsets meets what is lost."""
    if not flaw.lost:
        return True
    known = {int(split) if split.isdigit() else 0: o for split, o in at.items()}
    return any(end > known.get(partition, 0) for partition, _, end in flaw.lost)


def finding_of(flaw: Flaw, means: str, do: str = "") -> Finding:
    """The flaw of a topic as a finding."""
    return Finding(
        flaw.path, flaw.wrong, means, harm=flaw.harm, starts=not flaw.harm,
        do=do or FROM_BACKUP, repair=flaw.mended, mend=flaw.mend,
    )  # fmt: skip


def _log(job: JobFacts, name: str, about: Mapping[str, Any]) -> Iterator[Finding]:
    """The topic that an input reads."""
    folder = Path(str(about["place"]))
    if not is_topic(folder):
        means = f"input {name!r} reads this topic"
        yield Finding(folder / "topic.json", "it is missing", means, starts=False)
        return
    facts = verify(folder, job.look)
    yield from read_findings(job, facts, name)
    if facts.topic is not None and about.get("thing") not in (None, facts.topic.id):
        means = f"input {name!r} has read another topic of this name, which is gone"
        wrong = "it was deleted and made again"
        yield Finding(folder / "topic.json", wrong, means, starts=False)
        return
    yield from _reached(job, facts, name)


def _reached(job: JobFacts, facts: VerifiedTopic, name: str) -> Iterator[Finding]:
    """What the job has read of a topic, or has still to read, must be there."""
    if facts.head is None or facts.topic is None or any(f.harm for f in facts.flaws):
        return
    for split, at in offsets(job.newest, name).items():
        partition = int(split) if split.isdigit() else 0
        if not isinstance(at, int) or partition >= len(facts.head.ends):
            continue
        end = facts.head.ends[partition]
        first = 0 if facts.topic.compacted else facts.head.earliest[partition]
        means = f"input {name!r} has read partition {partition} up to record {at}"
        if at > end:
            wrong = f"partition {partition} ends at record {end}: it is older than the job"
            yield Finding(facts.path / "head", wrong, means, starts=False, do=_AGAIN)
        elif at < min(first, end):
            wrong = f"partition {partition} begins at record {first}: what lies before is removed"
            do = "start with --go-back, or a new folder, if the rows in between may be left out"
            yield Finding(facts.path, wrong, means, starts=False, do=do)
