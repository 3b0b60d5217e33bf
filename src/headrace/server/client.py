"""A server of jobs from Python: `hr.connect_server(url)`, its jobs, and what may be done with them.

Values are those of `values.py`, as the server has them; errors are those that it raised. A field
that this version does not know is left out, one that is missing is a server of another version.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, TypeVar

from headrace.errors import ServerError
from headrace.server.connection import TOKEN_VARIABLE, URL_VARIABLE, RestConnection, skew
from headrace.server.home import Home
from headrace.server.lifecycle import State, Verb
from headrace.server.tokens import OPERATE, read_tokens
from headrace.server.values import (
    Event,
    Figures,
    JobDetails,
    JobView,
    LogPart,
    Series,
    ServerInfo,
    UpgradePlan,
    Version,
)
from headrace.settings import Settings

_LOOK_EVERY = 0.5  # seconds
_TIMEOUT = 120.0  # what runs the user's program takes seconds
# Where a job stays until somebody does something.
_RESTS = frozenset((State.INACTIVE, State.ENDED, State.FAILED, State.KILLED))
T = TypeVar("T")


def connect_server(
    url: str | None = None, token: str | None = None, *, ca: str | Path | None = None
) -> ServerConnection:
    """Connect to a server of jobs, `headrace server`.

    Without an address it is that of HEADRACE_SERVER_URL, or that of the server whose home is in
    the working directory. The token comes from HEADRACE_SERVER_TOKEN, or, for a server of this
    directory, from its file of tokens. `ca` is a file with the certificate of a server that has
    one of its own.
    """
    home = Home(Settings.load().server)
    local = home.address()
    chosen = url or os.environ.get(URL_VARIABLE) or (local or {}).get("url")
    if chosen is None:
        raise ServerError(
            "HR-SERVER-088",
            "no server is known here",
            "Start one with `headrace server`; or give its address: --server URL, "
            "HEADRACE_SERVER_URL, or connect_server(url).",
        )
    token = token or os.environ.get(TOKEN_VARIABLE)
    if token is None and local is not None and str(chosen).rstrip("/") == local.get("url"):
        token = read_tokens(home.tokens_file)[OPERATE]
    if token is None:
        raise ServerError(
            "HR-SERVER-082",
            f"there is no token for the server at {chosen}",
            f"Set {TOKEN_VARIABLE}, or pass token=. The server's owner finds both in tokens.json "
            "of its home: one to read, one to operate.",
        )
    return ServerConnection(RestConnection(str(chosen), token, ca, _TIMEOUT))


class ServerConnection:
    """A server of jobs; `hr.connect_server` gives it."""

    def __init__(self, connection: RestConnection) -> None:
        self._connection = connection

    def __repr__(self) -> str:
        return f"<server at {self.url}>"

    @property
    def url(self) -> str:
        """Its address."""
        return self._connection.url

    def info(self) -> ServerInfo:
        """Its version, home and allowed folders, and how many jobs are in which state."""
        return _read(ServerInfo, self._connection.ask("GET", "server"))

    @property
    def role(self) -> str:
        """What the token allows: "read" or "operate"."""
        return str(_field(self._connection.ask("GET", "server"), "role"))

    def jobs(self) -> list[JobView]:
        """Every job, by name, in a line."""
        return [view_of_json(job) for job in _field(self._connection.ask("GET", "jobs"), "jobs")]

    def job(self, name: str) -> ServedJob:
        """One job; a ServerError if there is none of this name."""
        job = ServedJob(self._connection, name)
        job.details()
        return job

    def submit(
        self,
        program: str | Path,
        *,
        job: str | None = None,
        activate: bool = True,
        master: str | None = None,
        parallelism: int | None = None,
        target_batch: str | None = None,
        max_batch: int | None = None,
    ) -> ServedJob:
        """Give the server a program that lies in one of its allowed folders, and start it.

        `job` says which, if the program makes several; with activate=False it waits for
        `activate()`. The others are options of `headrace run`.
        """
        options = {
            "master": master, "parallelism": parallelism, "target_batch": target_batch,
            "max_batch": max_batch,
        }  # fmt: skip
        body: dict[str, Any] = {"program": os.fspath(program), "activate": activate}
        if job is not None:
            body["job"] = job
        if given := {name: value for name, value in options.items() if value is not None}:
            body["options"] = given
        made = view_of_json(self._connection.ask("POST", "jobs", body=body))
        return ServedJob(self._connection, made.name)

    def events(self, *, after: int = 0, limit: int = 200) -> list[Event]:
        """What happened to any job and to the server: the newest, or the first after an id."""
        return _events(self._connection, "events", after=after, limit=limit)


class ServedJob:
    """A job on a server. Each verb says at once what state it leads to; `wait` waits for one."""

    def __init__(self, connection: RestConnection, name: str) -> None:
        self._connection, self.name = connection, name

    def __repr__(self) -> str:
        return f"<job {self.name!r} on the server at {self._connection.url}>"

    @property
    def server(self) -> str:
        """The address of the server."""
        return self._connection.url

    # what it is

    def details(self) -> JobDetails:
        """All of it: state, figures, options, versions, and the verbs that are legal now."""
        found = self._ask("GET")
        return JobDetails(
            view_of_json(found),
            _field(found, "figures"),
            _field(found, "options"),
            tuple(_read(Version, one) for one in _field(found, "versions")),
            tuple(_verb(one) for one in _field(found, "verbs")),
        )

    @property
    def view(self) -> JobView:
        """Its line in the list, as it is now."""
        return self.details().job

    @property
    def state(self) -> State:
        """What it is doing now."""
        return self.view.state

    def figures(self) -> Figures | None:
        """Rates, lag, latency, memory, by input, step and output; None before the first batch."""
        return self.details().figures

    def series(
        self,
        *names: str,
        since: int | None = None,
        until: int | None = None,
        points: int | None = None,
    ) -> Series:
        """Figures over time, by path: "rate_in", "steps.NAME.busy"; an hour by default."""
        query = {
            "names": ",".join(names) or None, "since": since, "until": until, "points": points,
        }  # fmt: skip
        found = self._ask("GET", "series", query=query)
        named = {name: tuple(values) for name, values in _field(found, "series").items()}
        return Series(tuple(_field(found, "times")), named)

    def events(self, *, after: int = 0, limit: int = 200) -> list[Event]:
        """What happened to it: the newest, or the first after an id."""
        return _events(self._connection, "jobs", self.name, "events", after=after, limit=limit)

    def logs(
        self, *, run: int | None = None, after: int | None = None, limit: int = 500
    ) -> LogPart:
        """The last lines of a run, or those from byte `after` on."""
        query = {"run": run, "after": after, "limit": limit}
        return _read(LogPart, self._ask("GET", "logs", query=query))

    def follow_logs(self, *, run: int | None = None, limit: int = 20) -> Iterator[str]:
        """The last lines, and every further one; with a restart, those of the next run."""
        part = self.logs(run=run, limit=limit)
        while True:
            yield from part.lines
            if not part.lines:
                time.sleep(_LOOK_EVERY)
            following = [one for one in part.runs if one > part.run] if run is None else []
            if following and not part.lines:
                part = self.logs(run=following[0], after=0)
            else:
                part = self.logs(run=part.run, after=part.next)

    def plan(self) -> Mapping[str, Any]:
        """How it is executed: what `headrace explain --json` says of its version."""
        return self._mapping("plan")

    def why(self) -> Mapping[str, Any]:
        """Why it gives no output: what `headrace why --json` says."""
        return self._mapping("why")

    def dead(
        self, *, step: str | None = None, reason: str | None = None, limit: int = 100
    ) -> Mapping[str, Any]:
        """Its dead letters: how many of which step and error, and the newest."""
        return self._mapping("dead", query={"step": step, "reason": reason, "limit": limit})

    # what is done with it

    def activate(self) -> JobView:
        """Start it; it goes on after its last batch."""
        return self._move(Verb.ACTIVATE)

    def deactivate(self) -> JobView:
        """Stop it once its batch is done; its state stays."""
        return self._move(Verb.DEACTIVATE)

    def restart(self) -> JobView:
        """Stop it once its batch is done, and start it again."""
        return self._move(Verb.RESTART)

    def rebalance(self, parallelism: int) -> JobView:
        """Another number of tasks; it is restarted if it runs."""
        return self._move(Verb.REBALANCE, {"parallelism": parallelism})

    def upgrade(
        self,
        program: str | Path | None = None,
        *,
        drop: Collection[str] = (),
        note: str | None = None,
    ) -> JobView:
        """Another version of its program, by default what is now at the same path.

        A savepoint is made before; if the new version fails before its first batch, the one
        before comes back. `plan_upgrade` says what would happen to its state.
        """
        body = _upgrade(program, drop)
        return self._move(Verb.UPGRADE, body | ({} if note is None else {"note": note}))

    def plan_upgrade(
        self, program: str | Path | None = None, *, drop: Collection[str] = ()
    ) -> UpgradePlan:
        """What an upgrade would do, or why it would be refused; nothing is changed."""
        body = {**_upgrade(program, drop), "dry_run": True}
        return _read(UpgradePlan, self._ask("POST", "upgrade", body=body))

    def drain(self) -> JobView:
        """Read what is there, close every window, and end."""
        return self._move(Verb.DRAIN)

    def kill(self) -> JobView:
        """End its process at once; nothing that was committed is lost."""
        return self._move(Verb.KILL)

    def remove(self) -> None:
        """Take it off the list; its folder, with all its state, stays."""
        self._ask("DELETE")

    def wait(self, state: str | Sequence[str] = "running", timeout: float = 120.0) -> JobView:
        """Wait until it is in a state, or in one of several.

        A ServerError if it comes to rest in another one, and says why. A server that is started
        again meanwhile is waited for.
        """
        wanted = {_state(one) for one in ([state] if isinstance(state, str) else state)}
        deadline = time.monotonic() + timeout
        while True:
            missing: ServerError | None = None
            try:
                view = self.view
            except ServerError as error:
                if error.code != "HR-SERVER-080":
                    raise
                missing = error
            else:
                if view.state in wanted:
                    return view
                if view.state in _RESTS:
                    raise ServerError(
                        "HR-SERVER-086",
                        f"job {self.name!r} is {view.state}, and stays so"
                        + (f": {view.reason}" if view.reason else ""),
                        "`headrace logs` shows what it printed; it is started with "
                        "`headrace activate`.",
                    )
            if time.monotonic() > deadline:
                what = f"is {view.state}" if missing is None else "cannot be asked for"
                raise ServerError(
                    "HR-SERVER-085",
                    f"job {self.name!r} {what} after {timeout:g} s, not "
                    f"{' or '.join(sorted(wanted))}",
                    "Wait longer, or look at what it printed: `headrace logs`.",
                ) from missing
            time.sleep(_LOOK_EVERY)

    def _ask(self, method: str, *path: str, **more: Any) -> Any:
        return self._connection.ask(method, "jobs", self.name, *path, **more)

    def _mapping(self, what: str, query: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        found = self._ask("GET", what, query=query)
        if not isinstance(found, dict):
            raise skew(f"{what!r} is no object")
        return found

    def _move(self, verb: Verb, body: Mapping[str, Any] | None = None) -> JobView:
        return view_of_json(self._ask("POST", str(verb), body=body or {}))


def _upgrade(program: str | Path | None, drop: Collection[str]) -> dict[str, Any]:
    body: dict[str, Any] = {} if program is None else {"program": os.fspath(program)}
    return {**body, "drop": list(drop)} if drop else body


def _events(connection: RestConnection, *path: str, after: int, limit: int) -> list[Event]:
    found = connection.ask("GET", *path, query={"after": after, "limit": limit})
    return [_read(Event, one) for one in _field(found, "events")]


# From JSON to values.


def view_of_json(found: Any) -> JobView:
    state = _field(found, "state")
    try:
        known = State(state)
    except ValueError:
        raise skew(f"a job is in the state {state!r}") from None
    return _read(JobView, {**found, "state": known})


def _read(kind: type[T], found: Any) -> T:
    """A value of its JSON; lists become tuples."""
    values = dict[str, Any]()
    for one in fields(kind):  # type: ignore[arg-type]
        required = one.default is MISSING and one.default_factory is MISSING
        if required or (isinstance(found, dict) and one.name in found):
            value = _field(found, one.name)
            values[one.name] = tuple(value) if isinstance(value, list) else value
    return kind(**values)


def _field(found: Any, name: str) -> Any:
    if not isinstance(found, dict) or name not in found:
        raise skew(f"an answer lacks {name!r}")
    return found[name]


def _verb(name: str) -> Verb:
    try:
        return Verb(name)
    except ValueError:
        raise skew(f"it has a verb {name!r}") from None


def _state(name: str) -> State:
    try:
        return State(name)
    except ValueError:
        raise ServerError(
            "HR-SERVER-089",
            f"there is no state {name!r}",
            f"The states are {', '.join(State)}.",
        ) from None
