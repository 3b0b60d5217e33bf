"""What a server can be asked and told: one method for each route of the REST interface.

Methods may be called from any thread; they block for as long as the answer takes (questions that
need the user's program run a process, seconds). They return values of `values.py`, or plain JSON
where the command line's `--json` already says it, and raise HeadraceErrors;
`refusals.status_of(error)` is the HTTP status of one. `by` is who asks, for the events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from headrace.server.values import (
    Event,
    Figures,
    JobDetails,
    JobView,
    LogPart,
    Series,
    ServerInfo,
    UpgradePlan,
)

Json = dict[str, Any]


class Service:
    # the server

    def info(self) -> ServerInfo:
        raise NotImplementedError

    # jobs

    def jobs(self) -> list[JobView]:
        """Every job, by name."""
        raise NotImplementedError

    def job(self, name: str) -> JobDetails:
        raise NotImplementedError

    def figures(self) -> Mapping[str, Figures]:
        """The last figures of every job that has any: for /metrics."""
        raise NotImplementedError

    def submit(
        self,
        program: str,
        *,
        job: str | None = None,
        options: Mapping[str, Any] | None = None,
        activate: bool = True,
        by: str = "owner",
    ) -> JobView:
        """Take a program from an allowed folder; `job` chooses one if it makes several. Options:
        master, parallelism, target_batch, max_batch."""
        raise NotImplementedError

    def activate(self, name: str, *, by: str = "owner") -> JobView:
        raise NotImplementedError

    def deactivate(self, name: str, *, by: str = "owner") -> JobView:
        raise NotImplementedError

    def restart(self, name: str, *, by: str = "owner") -> JobView:
        raise NotImplementedError

    def rebalance(self, name: str, parallelism: int | None, *, by: str = "owner") -> JobView:
        """None: as many tasks as there are cores."""
        raise NotImplementedError

    def upgrade(
        self,
        name: str,
        *,
        program: str | None = None,
        drop: Collection[str] = (),
        note: str | None = None,
        by: str = "owner",
    ) -> JobView:
        """Another version of the program; without `program`, what is now at the same path."""
        raise NotImplementedError

    def plan_upgrade(
        self, name: str, *, program: str | None = None, drop: Collection[str] = ()
    ) -> UpgradePlan:
        """The dry run of `upgrade`."""
        raise NotImplementedError

    def drain(self, name: str, *, by: str = "owner") -> JobView:
        raise NotImplementedError

    def kill(self, name: str, *, by: str = "owner") -> JobView:
        raise NotImplementedError

    def remove(self, name: str, *, by: str = "owner") -> None:
        raise NotImplementedError

    # looking at a job

    def plan(self, name: str) -> Json:
        """`headrace explain --json` of the version that runs."""
        raise NotImplementedError

    def plan_svg(self, name: str) -> str:
        raise NotImplementedError

    def series(
        self,
        name: str,
        *,
        since: int | None = None,
        until: int | None = None,
        names: Sequence[str] = (),
        points: int = 600,
    ) -> Series:
        """Figures by path ("rate_in", "steps.NAME.busy"); without names, all of them."""
        raise NotImplementedError

    def events(self, name: str | None = None, *, after: int = 0, limit: int = 200) -> list[Event]:
        """Of a job, or of all and the server: the first after an id; with 0, the newest `limit`,
        oldest first."""
        raise NotImplementedError

    def logs(
        self, name: str, *, run: int | None = None, after: int | None = None, limit: int = 500
    ) -> LogPart:
        """Lines from byte `after`; without it, the last `limit` lines. Default: the last run."""
        raise NotImplementedError

    def why(self, name: str) -> Json:
        """`headrace why --json`."""
        raise NotImplementedError

    def state(self, name: str) -> Json:
        """{steps: [{name, kind, key, rows, bytes}]}."""
        raise NotImplementedError

    def query_state(self, name: str, step: str, sql: str | None, limit: int = 100) -> Json:
        """{columns, rows, epoch}: one SELECT, or without `sql` the rows of the step."""
        raise NotImplementedError

    # dead letters

    def dead(
        self, name: str, *, step: str | None = None, reason: str | None = None, limit: int = 100
    ) -> Json:
        """{total, groups: [{step, error, count, first, last}], letters: [...]}, newest first."""
        raise NotImplementedError

    def dead_letter(self, name: str, number: int) -> Json:
        raise NotImplementedError

    def replay_dead(
        self,
        name: str,
        *,
        step: str | None = None,
        reason: str | None = None,
        numbers: Collection[int] | None = None,
        dry_run: bool = False,
        by: str = "owner",
    ) -> Json:
        """`headrace dead replay --json`."""
        raise NotImplementedError

    # savepoints

    def savepoints(self, name: str) -> list[Json]:
        raise NotImplementedError

    def create_savepoint(self, name: str, savepoint: str, *, by: str = "owner") -> Json:
        raise NotImplementedError

    def delete_savepoint(self, name: str, savepoint: str, *, by: str = "owner") -> None:
        raise NotImplementedError
