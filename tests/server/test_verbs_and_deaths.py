"""Verbs in every state, deaths of the server at every step, of the job at any moment: against a
plain model of what a user has asked for, and of what is in the outputs.

A drawn script is played on a server that is a process of its own (`mortal_server.py`). Whatever
comes, no row is lost or comes twice, one process at a time drives the job, what was asked last is
what the job comes to, a verb is refused where the table does not have it, and nothing is left.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.server.lifecycle import BY_ITSELF, State, Verb, after, is_legal
from headrace.server.processes import MARK
from tests.server.forking import Command
from tests.server.mortal_server import Dead, MortalServer, Refused
from tests.server.worlds import PATIENCE, World, is_alive

EXAMPLES = int(os.environ.get("HEADRACE_EXAMPLES", "2"))
STEPS = 14
TRIAL = 20.0  # seconds to wait for what becomes of a version; an event may be lost with a server

PROGRAM = """
import os
import headrace as hr

job = hr.Job("shop", on_error="fail")
rows = job.read("files:in", format="json", schema="k string, n bigint", name="lines")
{before}
rows.write("files:out-rows", name="all")
sums = rows.key_by("k").agg(total=hr.sum("n"), count=hr.count(){more}, unbounded=True, name="sums")
sums.write("files:out-sums", name="out")
# {number}
"""
AT_START = 'if "HEADRACE_RUN_FOLDER" in os.environ: raise ValueError("at the till")'
DIES = 'if "HEADRACE_RUN_FOLDER" in os.environ: os.kill(os.getpid(), 9)'
IN_BATCH = """
def fails(row):
    raise ValueError("in a batch")
rows.map(fails, schema="x bigint").write("files:bad", name="bad")
"""
MORE = ', most=hr.max("n"), since="restart"'
GOOD = [{}, {"more": MORE}, {"before": 'rows = rows.where("n >= 0")'}]
BAD = [{"before": AT_START}, {"before": DIES}, {"before": IN_BATCH, "more": MORE}]


class Play:
    """The world, the server in it, and what the model knows."""

    def __init__(self, place: Path, command: Command, seed: int) -> None:
        self.draw, self.command, self.place = random.Random(seed), command, place
        self.world = World(place, command)
        self.sent, self.number, self.log = list[tuple[str, int]](), 1, list[str]()
        self.path = self.write(GOOD[0])
        self.server = MortalServer(place, command)
        self.server.do("submit", self.path)

    def write(self, changes: dict[str, str]) -> str:
        self.number += 1
        text = PROGRAM.format(**{"before": "", "more": "", **changes, "number": self.number})
        return self.world.write("shop.py", text)

    def say(self, text: str) -> None:
        self.log.append(text)

    # what is done

    def do(self, what: str, *values: Any, **named: Any) -> Any:
        """Asked of the server that lives; Dead if it has died of it, and the next one is up."""
        if not self.server.alive:
            self.revive()
        try:
            return self.server.do(what, *values, **named)
        except Dead:
            self.say("the server died")
            self.revive()
            raise

    def ask(self, what: str, *values: Any, **named: Any) -> Any:
        """Asked again of the next server, if that one has died of it."""
        while True:
            with suppress(Dead):
                return self.do(what, *values, **named)

    def revive(self) -> None:
        self.server.kill()
        self.server = MortalServer(self.place, self.command)

    def send(self) -> None:
        rows = [(self.draw.choice("abc"), len(self.sent) + i) for i in range(3)]
        self.world.send(*(json.dumps({"k": k, "n": n}) for k, n in rows))
        self.sent += rows

    def kill_process(self) -> None:
        """The launcher, or the job itself."""
        pid = self.ask("job", "shop")["pid"]
        with suppress(OSError, IndexError, TypeError):
            if self.draw.random() < 0.5:
                pid = int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])
            os.kill(pid, signal.SIGKILL)
            self.say(f"killed {pid}")

    def verb(self) -> None:
        """A verb of the drawn state, or any, and whether it was refused rightly."""
        job = self.ask("job", "shop")
        state, verbs = State(job["state"]), job["verbs"]
        verb = Verb(self.draw.choice(verbs if self.draw.random() < 0.7 else list(Verb)))
        if verb in (Verb.SUBMIT, Verb.REMOVE, Verb.DRAIN):
            return
        values: list[Any] = ["shop"]
        if verb == Verb.REBALANCE:
            values.append(self.draw.randint(1, 3))
        if verb == Verb.UPGRADE:
            self.write(self.draw.choice(GOOD + BAD))
        self.say(f"{verb} in {state}")
        try:
            moved = State(self.do(str(verb), *values)["state"])
        except Refused as refused:
            self.say(f"  {refused}")
            assert refused.code in ("HR-SERVER-002", "HR-SERVER-010") or verb == Verb.UPGRADE
            assert refused.fact
            if refused.code == "HR-SERVER-002":
                assert any(not is_legal(one, verb) for one in reach(state))
        except Dead:
            pass
        else:
            legal = {after(one, verb) for one in reach(state) if is_legal(one, verb)}
            assert any(moved in reach(one) for one in legal), (verb, state, moved)

    def until(self, *states: State) -> State:
        deadline = time.monotonic() + PATIENCE
        while (state := State(self.ask("job", "shop")["state"])) not in states:
            assert time.monotonic() < deadline, (states, self.story())
            time.sleep(0.05)
        return state

    def story(self) -> str:
        events = [": ".join(event) for event in self.ask("events", "shop", limit=40)]
        return "\n".join([*self.log, *events, str(self.ask("job", "shop"))])

    # how it ends

    def settle(self) -> None:
        """Nothing dies any more; the job is started if it rests, and reads all there is."""
        self.revive()
        rests = (State.INACTIVE, State.FAILED, State.KILLED)
        if self.until(*rests, State.RUNNING) != State.RUNNING:
            self.server.do("activate", "shop")
        for _ in range(3):  # a version that was not yet tried may fail, and be taken back
            self.send()
            self.until_read()
        self.server.do("drain", "shop")
        self.until(State.ENDED)

    def is_undecided(self) -> bool:
        """Whether a version is on trial, or on its way back: rows come, so it will be known."""
        state, events = self.ask("job", "shop")["state"], self.ask("events", "shop")
        ends = ("upgraded", "upgrade done", "rolling back", "rolled back", "upgrade failed")
        last = [kind for kind, *_ in events if kind in ends][-1:]
        return state != State.RUNNING or last in (["upgraded"], ["rolling back"])

    def until_read(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while Counter(self.rows()) != Counter(self.sent):
            assert not Counter(self.rows()) - Counter(self.sent), self.story()
            assert time.monotonic() < deadline, self.story()
            if self.until(State.FAILED, State.RUNNING, State.STARTING) == State.FAILED:
                raise AssertionError(self.story())
            time.sleep(0.1)

    def rows(self) -> list[tuple[str, int]]:
        try:
            found = hr.read_output(self.place / "out-rows").to_pylist()
        except hr.OutputError as error:
            assert error.code == "HR-OUTPUT-009"
            return []
        return [(row["k"], row["n"]) for row in found]

    def totals(self) -> dict[str, tuple[int, int]]:
        found = hr.read_output(self.place / "out-sums").to_pylist()
        last: dict[str, tuple[int, int]] = {}
        for row in found:
            last[row["k"]] = max(last.get(row["k"], (0, 0)), (row["count"], row["total"]))
        return last


def reach(state: State) -> set[State]:
    """Where a job may be by now, without a verb."""
    found, rest = {state}, [state]
    while rest:
        new = BY_ITSELF[rest.pop()] - found
        found |= new
        rest += new
    return found


@contextmanager
def watched(place: Path) -> Iterator[list[set[str]]]:
    """Looks all the while which runs have a process that drives: never two at once."""
    over, twice = threading.Event(), list[set[str]]()

    def look() -> None:
        while not over.wait(0.1):
            runs = set(living(place))
            if len(runs) > 1:
                twice.append(runs)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield twice
    finally:
        over.set()
        thread.join()


def living(place: Path) -> dict[str, list[int]]:
    """The processes that live, by the run that they belong to."""
    found: dict[str, list[int]] = {}
    mark = f"{MARK}={place}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            for one in (entry / "environ").read_bytes().split(b"\0"):
                if one.startswith(mark) and is_alive(int(entry.name)):
                    found.setdefault(one.decode(), []).append(int(entry.name))
    return found


def check(play: Play) -> None:
    """What the outputs hold, and who still lives, after all is over."""
    sums: dict[str, tuple[int, int]] = {}
    for k, n in play.sent:
        count, total = sums.get(k, (0, 0))
        sums[k] = count + 1, total + n
    assert Counter(play.rows()) == Counter(play.sent), play.story()
    assert play.totals() == sums, play.story()
    assert not living(play.place), play.story()


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_a_server_dies_at_every_step_of_upgrades(
    tmp_path: Path, command: Command, seed: int
) -> None:
    """Of good versions, and of those that fail at the start or in their first batch: what has
    failed is taken back, and what is good stays."""
    play = Play(tmp_path, command, 1_000 + seed)
    try:
        with watched(tmp_path) as twice:
            for _ in range(4):
                play.until(State.RUNNING)
                play.write(play.draw.choice([GOOD[1], *BAD]))
                with suppress(Dead):
                    play.do("die_at", play.draw.randint(2, 30), play.draw.random() < 0.5)
                    try:
                        play.do("upgrade", "shop")
                    except Refused as error:  # it would drop what a good version has added
                        assert "HR-EVOLVE-002" in str(error), play.story()
                for _ in range(3):
                    play.send()
                    time.sleep(play.draw.random())
                deadline = time.monotonic() + TRIAL
                while play.is_undecided() and time.monotonic() < deadline:
                    time.sleep(0.1)
            play.settle()
        assert not twice, play.story()
        check(play)
    finally:
        play.server.kill()
        play.world.end()


@pytest.mark.parametrize("seed", range(EXAMPLES))
def test_whatever_is_asked_and_whoever_dies_nothing_is_lost(
    tmp_path: Path, command: Command, seed: int
) -> None:
    play = Play(tmp_path, command, seed)
    try:
        with watched(tmp_path) as twice:
            for _ in range(STEPS):
                kind = play.draw.random()
                with suppress(Dead):
                    if kind < 0.45:
                        play.verb()
                    elif kind < 0.6:
                        play.send()
                    elif kind < 0.7:
                        play.kill_process()
                    elif kind < 0.85:
                        steps, late = play.draw.randint(1, 12), play.draw.random() < 0.5
                        play.say(f"the server dies, {late=}, at its step {steps}")
                        play.do("die_at", steps, late)
                    else:
                        time.sleep(play.draw.random())
            play.settle()
        assert not twice, play.story()
        check(play)
    finally:
        play.server.kill()
        play.world.end()
