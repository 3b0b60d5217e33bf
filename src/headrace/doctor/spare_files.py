"""Files that nothing names: they take space and change nothing.

Only where every manifest and savepoint can be read is it known what is named. While the job runs,
what is newer than its oldest manifest may be in the making, and is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

from headrace.doctor.finding import Finding
from headrace.doctor.job_files import SET_ASIDE, JobFacts
from headrace.driver.measuring import PUBLISHING
from headrace.files import TEMPORARY, size
from headrace.inspect.live import NOTE
from headrace.state.deliveries import BEGUN
from headrace.state.prune import RUNS, STAGED, files_in, strings_in
from headrace.state.resends import FOLDER as RESENDS
from headrace.state.savepoints import FOLDER as SAVEPOINTS

_KNOWN = {
    "job.json", "epochs", "fence", "published", "outputs", RUNS, STAGED, "inputs", SAVEPOINTS,
    "loops", "dead", "collect", BEGUN, RESENDS, "standstill.json", "stop", "drain",
    NOTE, PUBLISHING,
}  # fmt: skip


def check_spare(job: JobFacts, *, all_named: bool) -> Iterator[Finding]:
    """`all_named`: whether all that names files could be read."""
    oldest = job.folder / "epochs" / f"{min(job.manifests, default=0):012d}.json"
    before = oldest.stat().st_mtime_ns if job.runs and oldest.is_file() else None
    if all_named:
        for path in _unnamed(job):
            yield from _spare(path, before, "no manifest and no savepoint names it")
    for path in _unfinished(job.folder):
        yield from _spare(path, before, "a file that was not finished")
    for path in sorted((job.folder / "epochs").glob(f"*{SET_ASIDE}")):
        if int(path.name[:12]) < min(job.manifests, default=0):
            yield from _spare(path, None, "a manifest that was set aside, of an epoch that is gone")
    for path in sorted(job.folder.iterdir()) if job.folder.is_dir() else []:
        if path.name not in _KNOWN and not path.name.startswith(TEMPORARY):
            means = "nothing: the job does not look at it"
            yield Finding(path, "it is not a job's", means, harm=False)


def _unnamed(job: JobFacts) -> Iterator[Path]:
    manifests = [*job.manifests.values(), *(s.manifest for s in job.savepoints.values())]
    named = {text for m in manifests for text in strings_in(m.to_json()["body"])}
    for folder in (job.folder / RUNS, job.folder / STAGED):
        for path in sorted(files_in(folder)):
            if path.name not in named and path.relative_to(job.folder).as_posix() not in named:
                yield path


def _unfinished(folder: Path) -> Iterator[Path]:
    for place in (folder, *(folder / n for n in ("epochs", "fence", BEGUN, SAVEPOINTS))):
        yield from sorted(place.glob(f"{TEMPORARY}*"))


def _spare(path: Path, before: int | None, wrong: str) -> Iterator[Finding]:
    with suppress(FileNotFoundError):  # the job has just cleared it away
        found = path.lstat()
        if path.is_dir() or (before is not None and found.st_mtime_ns >= before):
            return
        means = f"nothing: it takes {size(found.st_size)}"
        gone = partial(path.unlink, missing_ok=True)
        yield Finding(path, wrong, means, harm=False, repair="removed", mend=gone)
