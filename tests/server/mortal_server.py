"""A server of jobs as a process of its own, which dies by `kill -9` at a step that is drawn.

    MortalServer(place, command)     opens it; `.do(verb, ...)` asks; `.die_at(steps, after)` arms

A step is a transaction of its store or the launch of a process: between two of them it changes
nothing that outlives it. It dies before the step is done, or right after.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.server.forking import Command

ROOT = Path(__file__).parents[2]
_CODE = """
import sys
from tests.server.mortal_server import serve
serve(*sys.argv[1:])
"""


class Dead(Exception):
    """The server has died; whether it has done what it was asked, nobody has said."""


class Refused(Exception):
    def __init__(self, code: str, fact: str) -> None:
        super().__init__(f"{code} {fact}")
        self.code, self.fact = code, fact


class MortalServer:
    def __init__(self, place: Path, command: Command, *, turn: float = 0.05) -> None:
        words = command(())
        arguments = [sys.executable, "-c", _CODE, str(place), words[4], words[3], str(turn)]
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )  # fmt: skip
        self._answer()

    def do(self, what: str, *values: Any, **named: Any) -> Any:
        """What the service answers; Refused; or Dead."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps([what, values, named]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Dead from None
        return self._answer()

    def die_at(self, steps: int, after: bool) -> None:
        self.do("die_at", steps, after)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Dead
        answer = json.loads(line)
        if "refused" in answer:
            raise Refused(*answer["refused"])
        return answer["answer"]


def serve(place: str, fork: str, forking: str, turn: str) -> None:
    from headrace.errors import HeadraceError
    from tests.server.worlds import World, with_policy

    world = World.at(Path(place), lambda words: [sys.executable, "-I", "-S", forking, fork, *words])
    with_policy(world, every=float(turn))
    world.open()
    death = _Death()
    _say(answer="open")
    for line in sys.stdin:
        what, values, named = json.loads(line)
        try:
            if what == "die_at":
                death.arm(*values)
                answer: Any = None
            elif what == "job":
                details = world.service.job(*values)
                versions = {v.version: v.outcome for v in details.versions}
                answer = {**details.job.json, "versions": versions, "verbs": details.verbs}
            elif what == "events":
                answer = [[e.kind, e.text, e.by] for e in world.service.events(*values, **named)]
            else:
                view = getattr(world.service, what)(*values, **named)
                answer = None if view is None else view.json
        except HeadraceError as error:
            _say(refused=[error.code, error.message])
        else:
            _say(answer=answer)


def _say(**answer: Any) -> None:
    print(json.dumps(answer), flush=True)


class _Death:
    """Counts steps, in all threads; kills this process at one of them."""

    def __init__(self) -> None:
        from headrace.server.processes import Processes
        from headrace.server.store import Store

        self._left, self._after = -1, False
        steps = {Store: ("put", "add_event", "put_version"), Processes: ("start", "stop", "kill")}
        for owner, name in ((owner, name) for owner, names in steps.items() for name in names):
            setattr(owner, name, self._counted(getattr(owner, name)))

    def arm(self, steps: int, after: bool) -> None:
        self._left, self._after = steps, after

    def _counted(self, call: Any) -> Any:
        def step(*values: Any, **named: Any) -> Any:
            self._left -= 1
            due = self._left == 0
            if due and not self._after:
                os.kill(os.getpid(), 9)
            answer = call(*values, **named)
            if due:
                os.kill(os.getpid(), 9)
            return answer

        return step
