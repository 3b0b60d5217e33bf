"""What doctor says of every damage, held against what the job does with it.

Where the job is refused, or readers are, doctor names the file. What it calls whole is. After
`--repair`, if it says that nothing is damaged any more, the job gives what the model says.
"""

from __future__ import annotations

from pathlib import Path

from damage.matrix import Case, Moment, Tally, attempt, put
from headrace.doctor.examine import examine_job, repair_job
from headrace.doctor.finding import Diagnosis
from headrace.errors import HeadraceError


def judge_doctor(moment: Moment, case: Case, tally: Tally) -> None:
    """One damage: what doctor finds, what the job does, what it does after a repair."""
    tally.cases += 1
    moment.restore()
    victim = moment.world.root / case.place
    put(victim, case.content)
    before = _content(moment.world.root)
    report = examine_job(moment.world.folder)
    if _content(moment.world.root) != before:
        tally.violations.append(f"{case}: looking has changed something")
    repaired = _repaired(moment, case, tally)
    if repaired is not None and repaired.healthy:
        wrong = attempt(moment.world, tally)
        if wrong is not None:
            tally.violations.append(f"{case}: after {repaired.repaired}: {wrong}")
    moment.restore()
    put(victim, case.content)
    wrong = attempt(moment.world, tally)
    if isinstance(wrong, HeadraceError):
        tally.refused += 1
        named = [f for f in report.damage if f.path == victim]
        if not named:
            tally.violations.append(f"{case}: refused ({wrong.code} {wrong.message}): {report}")
    else:
        tally.unchanged += wrong is None
        if wrong is None and not report.starts:
            tally.violations.append(f"{case}: the job starts, and doctor says not: {report}")


def _repaired(moment: Moment, case: Case, tally: Tally) -> Diagnosis | None:
    try:
        return repair_job(moment.world.folder)
    except HeadraceError as error:
        tally.violations.append(f"{case}: repair raises {error}")
        return None


def judge_whole(moment: Moment, tally: Tally) -> None:
    """Nothing is damaged: doctor finds nothing."""
    moment.restore()
    report = examine_job(moment.world.folder)
    if not report.healthy:
        tally.violations.append(f"{moment.name}, whole: {report}")


def _content(root: Path) -> dict[str, bytes | str]:
    found = dict[str, bytes | str]()
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[str(path)] = str(path.readlink())
        elif path.is_file():
            found[str(path)] = path.read_bytes()
    return found
