"""The page of `headrace server` over the demo's job, to look at while it runs.

The job runs in the demo itself, so the server starts and watches no process: it reads the job's
folder, as it does with every job. The address has a token that may read and nothing else.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import headrace as hr
from headrace.clock import SystemClock
from headrace.server.daemon import Daemon
from headrace.server.http import serve
from headrace.server.lifecycle import State
from headrace.server.processes import write_json
from headrace.server.records import JobRecord
from headrace.server.submissions import PLAN
from headrace.server.values import Version


@contextmanager
def page(job: hr.Job, program: Path, folder: Path, place: Path) -> Iterator[str | None]:
    """The page's address while the block runs; None if the extra `server` is not installed."""
    tokens = {role: secrets.token_urlsafe(24) for role in ("read", "operate")}
    with ExitStack() as at_end:
        daemon = Daemon(place / "server", [program.parent], version=hr.__version__, folder=place)
        at_end.push(daemon)  # only its end: it is not to watch processes
        _know(daemon, job, program, folder)
        daemon.parts.sampling.start()
        try:
            http = at_end.enter_context(serve(daemon.service, port=0, tokens=tokens))
        except ImportError:
            yield None
        else:
            yield f"{http.url}/#token={tokens['read']}"


def _know(daemon: Daemon, job: hr.Job, program: Path, folder: Path) -> None:
    """Record the job as one that runs, with its program and its plan."""
    desk, version = daemon.parts.desk, daemon.home.version(job.name, 1)
    snapshot = daemon.parts.programs.snapshot(str(program), version)
    write_json(version / PLAN, job.explain().json)
    desk.put(JobRecord(job.name, str(program), str(folder), since=0, state=State.RUNNING))
    desk.store.put_version(
        job.name,
        Version(
            1, str(program), SystemClock().now(), "the demo", snapshot.digest, outcome="running"
        ),
    )
    desk.say(job.name, "started", "by the demo", "the demo")
