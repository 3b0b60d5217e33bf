"""The start of a run: the program checked, the folder taken, the query started.

Until the run is there, a signal ends the start and all that it has begun, at any moment.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from headrace.driver.planner import Pace
from headrace.driver.start import prepare
from headrace.engine import jvm
from headrace.engine.card import reporter_for
from headrace.engine.interrupts import acting, die_of, say_stopped
from headrace.engine.run import Run
from headrace.engine.session import cores, in_process, session
from headrace.errors import RunError
from headrace.inspect.progress import Progress
from headrace.plan.program import Drafted, build
from headrace.settings import Settings
from headrace.sinks.on_driver import is_driver_output


def run(
    job: Drafted,
    *,
    until: str | None = None,
    master: str | None = None,
    folder: str | None = None,
    target_batch: str | int | None = None,
    max_batch: int | None = None,
    parallelism: int | None = None,
    drop: Collection[str] = (),
    drop_all: bool = False,
    take_over: bool = False,
    go_back: bool = False,
    for_good: bool = False,
    debug: bool = False,
    quiet: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Run:
    """Start `job` on Spark.

    until: "end" reads what is there now, closes every window and ends, for good; "now" reads
    what is there now and stops with its windows open, and the next run continues.
    master: where Spark runs, such as "local[2]" or "spark://host:7077"; by default all cores of
    this machine.
    folder: the job's folder, where its state is; by default .headrace/jobs/NAME.
    target_batch: the time that a batch should take ("1s"). max_batch: rows in a batch instead,
    for throughput.
    parallelism: tasks per level; by default one for each core.
    drop: names of steps and inputs that the program no longer has, whose state or offsets may be
    dropped; and of outputs whose earlier rows may be lost. drop_all: drop all such state.
    take_over: take the folder over from a run that is alive, which then fails.
    go_back: continue from a folder that is older than its outputs; what is done is reported.
    for_good: allow until="end" for a job that has run without it, and close its windows.
    debug: when Spark fails, show its own text as well.
    quiet: print nothing; otherwise progress and, at the end, where every record went, are printed
    on standard error.
    on_progress: a function that is called after each committed batch, with what `run.progress`
    then is.
    """
    if until not in (None, "now", "end"):
        raise RunError(
            "HR-RUN-004",
            f"until is {until!r}",
            'Pass "now" to stop after what is there now, "end" to close every window as well, '
            "or leave it out.",
        )
    program = build(job)
    with _stoppable(program.name):
        settings = Settings.load(
            master=master, target_batch=target_batch, max_batch=max_batch, parallelism=parallelism
        )
        reporter = None if quiet else reporter_for(program.name)
        if reporter is not None and not in_process(settings.master):
            reporter.starting()  # a cluster must be asked how many cores it has
        if any(is_driver_output(write.uri) for write in program.outputs()):
            session(settings.master, debug=debug)  # a start may have to deliver what was promised
        tasks = settings.parallelism or cores(settings.master, debug)
        start = prepare(
            program,
            settings,
            tasks,
            folder=folder,
            until=until,
            drop=drop,
            drop_all=drop_all,
            take_over=take_over,
            go_back=go_back,
            for_good=for_good,
            say=None if reporter is None else reporter.say,
        )
        if reporter is not None:
            for note in start.notes:
                reporter.say(f"{program.name}: {note}")
        pace = Pace(
            tasks=min(tasks, start.slots),
            slots=start.slots,
            until=until,
            target_ms=settings.target_batch,
            max_batch=settings.max_batch,
        )
        try:
            return Run(start, settings, pace, debug, reporter, on_progress)
        except BaseException:
            start.log.release()
            raise


@contextmanager
def _stoppable(name: str) -> Iterator[None]:
    """SIGTERM and SIGHUP would end this process and nothing else: they end all, and then it.
    Ctrl-C remains Python's exception, and a handler of the program's own remains its own."""

    def end(number: int) -> None:
        jvm.kill()
        say_stopped(name, number)
        die_of(number)

    with acting(end, only=[signal.SIG_DFL]):
        try:
            yield
        except KeyboardInterrupt:
            say_stopped(name, signal.SIGINT)
            raise
