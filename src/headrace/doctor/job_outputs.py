"""Outputs: what is staged and not published yet, and whether each place holds what it should."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headrace.doctor.finding import FROM_BACKUP, Finding
from headrace.doctor.job_files import JobFacts, files_target, wrong_of
from headrace.doctor.job_inputs import finding_of
from headrace.doctor.output_files import check_output_files
from headrace.epoch.bundle import DEAD
from headrace.errors import HeadraceError
from headrace.inspect.output_epochs import OutputEpochs, opened, outputs
from headrace.log.verify import is_topic, verify
from headrace.plan.program import Drafted
from headrace.printed import counted
from headrace.sinks import Timelines
from headrace.sinks.delivered import StagedSink
from headrace.sinks.durable import check_bytes
from headrace.sinks.files import chain_of
from headrace.state.manifest import Manifest, OutputFacts

_OWN_CHECKS = ("log",)  # kinds that are read here, without the readers, which may mend


def check_outputs(job: JobFacts, program: Drafted | None) -> Iterator[Finding]:
    """Staged files, then the places."""
    yield from _staged(job, program)
    due = dict(job.newest.writes)
    if DEAD not in due and (job.folder / DEAD / "_commits").is_dir():
        due[DEAD] = OutputFacts(DEAD, {"kind": "files"}, job.newest.last_dead)
    hurt = set[str]()
    for name, facts in due.items():
        found = list(_output(job, name, facts))
        hurt |= {name} if any(f.harm for f in found) else set()
        yield from found
    if job.manifests and job.last == job.newest.epoch:
        yield from _asked(job, program, hurt)


def _output(job: JobFacts, name: str, facts: OutputFacts) -> Iterator[Finding]:
    target = files_target(job.folder, name, job.newest)
    if target is not None:
        own = None if job.identity is None else chain_of(job.identity, facts.id)
        yield from check_output_files(job, name, target, own, _due(job, facts))
    elif facts.about.get("kind") == "log":
        yield from _topic(job, name, facts)


def _topic(job: JobFacts, name: str, facts: OutputFacts) -> Iterator[Finding]:
    """The topic that an output writes to: whole, and with all that was published."""
    folder = Path(facts.place)
    last = _due(job, facts)
    if not is_topic(folder):
        if last or folder.is_dir():
            means = f"output {name!r} has written rows up to epoch {last} there"
            yield Finding(folder / "topic.json", "it is missing", means, starts=False)
        return
    found = verify(folder, job.look)
    for flaw in found.flaws:
        yield finding_of(flaw, f"output {name!r}: {flaw.means}")
    if any(f.harm for f in found.flaws) or job.identity is None:
        return
    sink = opened(str(job.folder), job.newest, name, facts, None)
    if not isinstance(sink, StagedSink):
        return
    try:
        held, line = sink.held_of(found.producers), Timelines.of(job.newest)
    except HeadraceError:  # the identity is damaged, which is said elsewhere
        return
    if last and held.own.get(line.at(last), 0) < last:
        means = f"output {name!r} has published epoch {last} there, which the topic does not know"
        wrong = "the topic was deleted, or is an older copy"
        do = f"{FROM_BACKUP}; or let its earlier rows be lost: --drop {name}"
        yield Finding(folder, wrong, means, starts=False, do=do)
    counts = line.plus(job.newest.stays().get(facts.place, {}))
    if not job.going_back and counts.beyond(held.all):
        yield _ahead(job, name, held.number)


def _due(job: JobFacts, facts: OutputFacts) -> int:
    """The last epoch with rows that is known to be published there."""
    for epoch in sorted(job.counting, reverse=True):
        if epoch <= job.published:
            manifest = job.manifests[epoch]
            last = {f.id: f.last for f in manifest.writes.values()}
            return last.get(facts.id, manifest.last_dead if facts.id == DEAD else 0)
    return 0


# What is not published yet.


def _staged(job: JobFacts, program: Drafted | None) -> Iterator[Finding]:
    for epoch, manifest in sorted(job.counting.items()):
        if epoch > job.published:
            for name in manifest.outputs:
                yield from _staged_of(job, manifest, name, program)


def _staged_of(
    job: JobFacts, manifest: Manifest, name: str, program: Drafted | None
) -> Iterator[Finding]:
    facts = manifest.writes.get(name) or OutputFacts(DEAD, {}, 0)
    means = f"of epoch {manifest.epoch} for output {name!r}, which are not published yet"
    try:
        sink = opened(str(job.folder), manifest, name, facts, program)
        for reference in manifest.outputs[name]:
            path = sink.staged_at(reference)
            if path is None:
                continue
            job.look(path)
            try:
                check_bytes(path, reference["bytes"], reference["crc"])
            except FileNotFoundError:
                if _merged(job, manifest, name) or manifest.epoch <= _published_now(job):
                    continue
                wrong = "it is missing"
            except HeadraceError as error:
                wrong = wrong_of(path, error).rpartition("damaged: ")[2]
            else:
                continue
            yield Finding(
                path,
                wrong,
                f"{counted(reference['rows'], 'row')} {means}",
                starts=False,
                epochs=frozenset({e for e in job.manifests if e >= manifest.epoch}),
            )
    except HeadraceError as error:
        yield Finding(
            job.folder, f"output {name!r} cannot be opened: {error.message}", means, harm=False
        )


def _published_now(job: JobFacts) -> int:
    """A job that runs has gone on since."""
    from headrace.state.epochs import PublishedMark

    try:
        return PublishedMark(job.folder).epoch()
    except HeadraceError:
        return 0


def _merged(job: JobFacts, manifest: Manifest, name: str) -> bool:
    """Whether the records of a files output have the epoch already: it was published."""
    target = files_target(job.folder, name, manifest)
    facts = manifest.writes.get(name)
    if target is None or job.identity is None:
        return False
    chain = chain_of(job.identity, DEAD if facts is None else facts.id)
    from headrace.sinks.commits import Commits

    return any(n.epoch >= manifest.epoch for n in Commits(target).names(chain))


# Which epochs they show.


def _asked(job: JobFacts, program: Drafted | None, hurt: set[str]) -> Iterator[Finding]:
    """What the places themselves say, those whose files are damaged left out."""
    try:
        asked = outputs(job.folder, program, without=_OWN_CHECKS).outputs
    except HeadraceError:  # of a file that was found before
        return
    for one in asked:
        if one.name in hurt:
            continue
        place = _place(job, one)
        if one.note.startswith("it cannot be asked"):
            means = "nothing is known of it; pass the job's Python file if it needs a password"
            yield Finding(place, one.note, means, harm=False)
        elif one.note.startswith("it has rows of epochs"):
            if not job.going_back:
                yield _ahead(job, one.name, one.holds or 0)
        elif one.note.startswith("it holds nothing after"):
            missing = place / "_commits" if (place / "_commits").is_dir() else place
            wrong = f"it holds nothing after epoch {one.holds}: it was deleted, or is an older copy"
            means = f"output {one.name!r} has published epoch {one.last} there"
            do = f"{FROM_BACKUP}; or let its earlier rows be lost: --drop {one.name}"
            yield Finding(missing, wrong, means, starts=False, do=do)


def _place(job: JobFacts, one: OutputEpochs) -> Path:
    return files_target(job.folder, one.name, job.newest) or Path(one.place)


def _ahead(job: JobFacts, name: str, held: int) -> Finding:
    """An output knows of epochs that the folder does not: manifests were lost."""
    newest = job.newest
    missing = f"{newest.epoch + 1:012d}.json"
    wrong = f"it is missing: output {name!r} has rows of epoch {held}"
    means = "what is true since then; or this folder was restored from a copy, and the output not"
    do = (
        "put the newest folder back; or go on from this one with --go-back, or headrace rewind: "
        "files outputs then lose what the folder does not know, topics get it twice"
    )
    return Finding(job.folder / "epochs" / missing, wrong, means, starts=False, do=do)
