"""Everything of a job, or of topics, looked at; and what can be put right, put right.

Looking changes nothing, also while the job runs: what is found then is looked at again, and what
is not found every time was only a file that came or went. Repairing takes the folder, as a start
does, so the job must be stopped; topics are repaired under their own locks.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from headrace.doctor.finding import Diagnosis, Finding, Looked
from headrace.doctor.job_files import JobFacts, check_fence, check_job_files
from headrace.doctor.job_inputs import check_inputs, finding_of
from headrace.doctor.job_outputs import check_outputs
from headrace.doctor.job_state import check_state
from headrace.doctor.spare_files import check_spare
from headrace.doctor.way_back import way_back
from headrace.errors import HeadraceError, StateError
from headrace.files import make_folder, size
from headrace.log.verify import verify
from headrace.log.verify_shared import verify_shared
from headrace.plan.program import Drafted
from headrace.printed import counted, spans
from headrace.state.epochs import EpochLog

Tell = Callable[[int, int], None]  # files and bytes that were read so far

_LOOKS = 3  # at a job that runs
_LITTLE, _NOTHING = 100 << 20, 1 << 20  # bytes free
_ALL, _EFFECTIVE = os.R_OK | os.W_OK | os.X_OK, os.access in os.supports_effective_ids
_OTHER_VERSION = "this version reads"
_NEWER = "run the version of Headrace that wrote it"


def examine_job(
    folder: str | Path,
    program: Drafted | None = None,
    file: str | None = None,
    tell: Tell | None = None,
) -> Diagnosis:
    """What is wrong with the job in `folder`; `file` is the name of the program's file.

    With `program` outputs are opened as it says, which passwords and classes of your own need.
    """
    place = Path(os.path.abspath(folder))
    report = _look(place, program, file, tell, runs=is_running(place))
    for _ in range(_LOOKS - 1):
        if report.healthy or not is_running(place):
            break
        again = _look(place, program, file, None, runs=True)
        known = {(f.path, f.harm) for f in report.findings}
        found = tuple(f for f in again.findings if (f.path, f.harm) in known)
        report = replace(again, findings=found, advice=again.advice if found else ())
    return report


def repair_job(
    folder: str | Path,
    program: Drafted | None = None,
    file: str | None = None,
    tell: Tell | None = None,
) -> Diagnosis:
    """Repair what is provably right; what is found afterwards, and what was done."""
    place = Path(os.path.abspath(folder))
    if is_running(place):
        raise StateError(
            "HR-DOCTOR-001",
            f"the job in {str(place)!r} is running: a driver that lives has the folder",
            "Stop it first (headrace deactivate); without --repair doctor only looks, also at a "
            "job that runs.",
        )
    log, done = EpochLog(place), list[str]()
    _mend(list(check_fence(JobFacts(place, Looked()))), done)
    make_folder(place / "fence")
    log.take_fence()
    try:
        report = _look(place, program, file, tell)
        before = len(done)
        _mend(report.findings, done)
        if len(done) > before:
            report = _look(place, program, file, None)
        return replace(report, repaired=tuple(done))
    finally:
        log.release()


def examine_topics(places: Sequence[Path], tell: Tell | None = None) -> Diagnosis:
    """What is wrong with topics of the embedded log, and with what they share."""
    look, found, records = Looked(tell), list[Finding](), 0
    for place in places:
        facts = verify(place, look)
        found += [replace(finding_of(f, f.means), starts=True) for f in facts.flaws]
        if facts.head is not None:
            records += sum(facts.head.ends) - sum(facts.head.earliest)
    for root in sorted({place.parent for place in places}):
        found += [replace(finding_of(f, f.means), starts=True) for f in verify_shared(root, look)]
    names = ", ".join(place.name for place in places[:5])
    more = f" and {len(places) - 5} more" if len(places) > 5 else ""
    what = f"topic{'s' if len(places) > 1 else ''} {names}{more}, {counted(records, 'record')}"
    return Diagnosis(
        what, look.files, look.bytes, tuple(map(_of_this_version, found)), of_job=False
    )


def repair_topics(places: Sequence[Path], tell: Tell | None = None) -> Diagnosis:
    """Repair what is provably right; what is found afterwards, and what was done."""
    done, report = list[str](), examine_topics(places, tell)
    _mend(report.findings, done)
    if done:
        report = examine_topics(places)
    return replace(report, repaired=tuple(done))


def is_running(folder: Path) -> bool:
    """Whether a driver lives; one that cannot be told of counts as none."""
    try:
        return EpochLog(folder).is_held()
    except HeadraceError:
        return False


def _mend(findings: Sequence[Finding], done: list[str]) -> None:
    for finding in findings:
        if finding.mend is not None:
            try:
                finding.mend()
            except (OSError, HeadraceError) as error:
                why = error.message if isinstance(error, HeadraceError) else error
                done.append(f"{finding.path} could not be: {why}")
            else:
                done.append(f"{finding.path}: {finding.repair}")


def _look(
    folder: Path, program: Drafted | None, file: str | None, tell: Tell | None, runs: bool = False
) -> Diagnosis:
    job = JobFacts(folder, Looked(tell), runs)
    found = [*_place(folder), *check_job_files(job)]
    unnamed = any(f.harm and f.path.parent.name in ("epochs", "savepoints") for f in found)
    found += check_state(job)
    found += check_inputs(job)
    found += check_outputs(job, program)
    found += check_spare(job, all_named=not unnamed)
    found = list(map(_of_this_version, _once(found)))
    damage = [f for f in found if f.harm]
    advice = tuple(way_back(job, damage, file))
    return Diagnosis(_what(job), job.look.files, job.look.bytes, tuple(found), advice)


def _once(found: Sequence[Finding]) -> Iterator[Finding]:
    """Of what is said of one file, the first; a topic may be read and written."""
    seen = set[tuple[Path, bool]]()
    for one in found:
        if (one.path, one.harm) not in seen:
            seen.add((one.path, one.harm))
            yield one


def _of_this_version(finding: Finding) -> Finding:
    """What another version has written is not damaged, and is left alone."""
    if _OTHER_VERSION not in finding.wrong:
        return finding
    return replace(finding, do=_NEWER, repair="", mend=None)


def _what(job: JobFacts) -> str:
    name = job.newest.job or job.folder.name
    epochs = f"epochs {spans(job.manifests)}" if job.manifests else "no epoch yet"
    savepoints = f", {counted(len(job.savepoints), 'savepoint')}" if job.savepoints else ""
    return f"job {name} in {job.folder}, {epochs}{savepoints}"


def _place(folder: Path) -> Iterator[Finding]:
    """Whether anything can be written there."""
    for place in (folder, *(folder / n for n in ("epochs", "fence", "runs", "staged", "inputs"))):
        if place.is_dir() and not os.access(place, _ALL, effective_ids=_EFFECTIVE):
            wrong = f"user {os.geteuid()} may not read and write there"
            do = "give the user that runs the job permission"
            yield Finding(place, wrong, "nothing can be committed", starts=False, do=do)
    free = shutil.disk_usage(folder).free if folder.is_dir() else _LITTLE
    if free < _LITTLE:
        harm = free < _NOTHING
        yield Finding(
            folder, f"the disk has {size(free)} free", "an epoch needs room for what it stores",
            harm=harm, starts=not harm, do="free some space",
        )  # fmt: skip
