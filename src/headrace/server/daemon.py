"""A server of jobs, put together: one for each home, from its start to its end.

It ends by itself never, and with it no job does: the processes of jobs are in sessions of their
own, and the next server in the same home finds them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from headrace.clock import Clock, SystemClock
from headrace.errors import ServerError
from headrace.restarts import command_of
from headrace.server.desk import Desk
from headrace.server.home import Home
from headrace.server.processes import Processes
from headrace.server.programs import Programs
from headrace.server.questions import Questions
from headrace.server.sampling import Sampling
from headrace.server.service import ServerParts, Service
from headrace.server.store import Store
from headrace.server.submissions import Submissions
from headrace.server.supervisor import JobSupervisor, Policy
from headrace.server.tokens import load_tokens
from headrace.server.verbs import Verbs


class Daemon:
    """`with Daemon(home, programs) as daemon: serve(daemon.service, ...)`."""

    def __init__(
        self,
        home: str | Path,
        programs: Iterable[str | Path] = (),
        *,
        version: str = "",
        folder: str | Path = ".",
        policy: Policy | None = None,
        clock: Clock | None = None,
        runs: Callable[[Sequence[str]], list[str]] = command_of,
        questions: Callable[[Sequence[str]], list[str]] = command_of,
    ) -> None:
        """`folder` is where jobs run; `runs` and `questions` make the command line of arguments
        of `headrace`."""
        self._clock, where = clock or SystemClock(), Path(folder).resolve()
        allowed = Programs(programs, where)
        self.home = Home(home)
        self.home.make()
        self.home.hold()
        try:
            self.home.forget_address()  # of one that was killed: it may be anybody's by now
            self._store = Store(self.home.store)
            try:
                self.tokens = load_tokens(self.home.tokens_file)
                self._build(version, where, allowed, policy or Policy(), runs, questions)
            except BaseException:
                self._store.close()
                raise
        except BaseException:
            self.home.release()
            raise

    def _build(
        self,
        version: str,
        where: Path,
        programs: Programs,
        policy: Policy,
        runs: Callable[[Sequence[str]], list[str]],
        questions: Callable[[Sequence[str]], list[str]],
    ) -> None:
        desk = Desk(self.home, self._store, self._clock)
        processes, asked = Processes(where, runs), Questions(where, questions, home=self.home.path)
        supervisor = JobSupervisor(desk, processes, asked, policy)
        verbs = Verbs(desk, supervisor.wake, supervisor.is_busy)
        parts = ServerParts(
            desk, verbs, supervisor, processes, Sampling(desk),
            Submissions(desk, verbs, programs, asked, processes), programs, asked, version,
            self._clock.now(),
        )  # fmt: skip
        self.parts, self.service, self.started = parts, Service(parts), parts.started

    @property
    def forgotten(self) -> str:
        """That there were jobs here that the store does not know, as where it was lost."""
        known = {self.home.job(record.name).name for record in self.parts.desk.records()}
        found = sorted({path.name for path in (self.home.path / "jobs").iterdir()} - known)
        names = ", ".join(found[:10]) + (" ..." if len(found) > 10 else "")
        return f"{self.home.store.name} does not know {names}: submit them again" if found else ""

    def __enter__(self) -> Daemon:
        self.parts.desk.say(None, "server started", f"process {os.getpid()}")
        if self.forgotten:
            self.parts.desk.say(None, "forgotten", self.forgotten)
        self.parts.supervisor.start()
        self.parts.sampling.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """The server ends; jobs go on."""
        self.parts.sampling.close()
        self.parts.supervisor.close()
        try:
            with suppress(ServerError):  # the disk is full: nobody needs to read that it has ended
                self.parts.desk.say(None, "server ended", "jobs go on")
        finally:
            self._store.close()
            self.home.forget_address()
            self.home.release()
