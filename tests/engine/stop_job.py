"""A job that gets a signal at a named moment of its start, as a program of its own.

`stop_job FOLDER cli|script MOMENT SIGNAL group|leader`
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import headrace as hr
from headrace.state.faults import hooked

JOB = """
import headrace as hr

job = hr.Job("stopped")
job.read(hr.generate(10, lambda i: {"n": i}), name="numbers").write("collect:", name="out")
"""
MOMENTS = (
    "start.folder", "start.zygote", "start.jvm", "start.gateway", "start.session", "start.launch",
    "start.query",
)  # fmt: skip


def main(folder: str, how: str, moment: str, sent: str, to: str) -> None:
    number, passed = signal.Signals[sent], []

    def hook(name: str) -> None:
        if name == moment and not passed:
            passed.append(name)
            os.kill(os.getpid() if to == "leader" else -os.getpgid(0), number)

    os.chdir(folder)
    Path("job.py").write_text(JOB)
    with hooked(hook):
        (_by_command if how == "cli" else _by_script)()


def _by_command() -> None:
    import headrace_command

    sys.argv = ["headrace", "run", "job.py", "--master", "local[1]"]
    headrace_command.main()


def _by_script() -> None:
    names: dict[str, object] = {}
    exec(JOB, names)
    job = names["job"]
    assert isinstance(job, hr.Job)
    hr.run(job, master="local[1]").wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
