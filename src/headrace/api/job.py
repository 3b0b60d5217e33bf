"""A job: its name, its inputs, and what happens when a row cannot be processed.

Building a job touches no data; the one thing looked up outside is the schema of an input
that brings its own (a typed topic, a Parquet file), when `schema=` is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace import notebook
from headrace.api.inputs import Timing, check_declared, check_kind, check_place, own_schema, timing
from headrace.api.shedding import shedding
from headrace.api.stream import Stream
from headrace.clock import Duration
from headrace.errors import PlanError, Site, call_site
from headrace.expr import Expr
from headrace.guarantees import ASKED, JobGuarantee, spelled
from headrace.hints import UnknownNameError, named_arguments, no_such_name
from headrace.ops.shedding import Shedding
from headrace.ops.watermarks import Ingestion, Strategy
from headrace.plan.checks import check
from headrace.plan.draft import DEAD, UNKNOWN, Draft, bad_name, place_name
from headrace.plan.explain import Explanation, explain
from headrace.plan.nodes import DEAD_SCHEMA, Dead, Edge, Read
from headrace.plan.program import Program, build
from headrace.schema import SchemaLike, schema_of
from headrace.secrets import without_secrets
from headrace.sources.memory import MemorySource

MOST_SLOTS = 4096


@named_arguments
class Job:
    """A program under a name; the name is the identity of its folder and its outputs."""

    def __init__(
        self,
        name: str,
        folder: str | None = None,
        *,
        on_error: str = "dead",
        dead_limit: int | float | None = None,
        slots: int | None = None,
        guarantee: str | None = None,
    ) -> None:
        """`on_error`: a bad row goes to `job.dead`, or stops the job ("fail"). `dead_limit`:
        this many dead rows, or this fraction of the rows read, stop the job. `guarantee`:
        "exactly_once", "at_least_once" or "at_most_once"; the job does not start where an input
        or output cannot give it. Without it, each output gives the most that it can."""
        self.name = name
        asked: Any = spelled(guarantee)
        self.draft = Draft(name, folder, on_error, dead_limit, slots, asked)
        self._dead: Stream | None = None
        site = call_site()
        for problem in _bad_settings(self.draft):
            self.draft.report(problem, site)

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"

    def _repr_html_(self) -> str:
        steps = [
            (n.name, ", ".join(e.node.name for e in n.inputs), ", ".join(n.schema.names))
            for n in self.draft.whole()
        ]
        problems = check(self.draft)
        found = f"{len(problems)} problem{'s' if len(problems) > 1 else ''}" if problems else ""
        html = notebook.heading(f"job {self.name}", found)
        html += notebook.grid([("step",), ("reads from",), ("columns",)], steps) if steps else ""
        return html + (notebook.preformatted("\n".join(map(str, problems))) if problems else "")

    def read(
        self,
        uri: str | Any,
        *,
        schema: SchemaLike | None = None,
        time: str | Expr | Ingestion | None = None,
        delay: Duration | None = None,
        watermark: Strategy | None = None,
        idle: Duration | None = None,
        max_skew: Duration | None = None,
        align: Duration | None = None,
        in_order: bool = False,
        shed: Shedding | None = None,
        format: str | None = None,
        name: str | None = None,
        was: str | None = None,
        **options: Any,
    ) -> Stream:
        """An input: "log:topic", "files:path", "socket:host:port", or a source made in Python.

        `time` is event time: a column, an expression that computes it from the row, as in
        `time="to_timestamp(day, 'dd.MM.yyyy')"`, or `hr.ingestion()`: the clock's. `delay` says how
        late a row may come after a newer one; instead, `in_order=True` says that rows never
        do, and `watermark` takes another strategy, of `hr.watermarks`. An input silent for
        `idle` no longer holds windows back; a row further ahead of the clock than `max_skew` is
        dead; a split further ahead than `align` of the slowest one is not read until that has
        caught up. `shed`, of `hr.shedding`: which records may be dropped when too many wait.
        """
        site = call_site()
        uri, options = without_secrets(uri, options)
        with self.draft.attempt(site):
            check_kind(uri, "read", options)
            if isinstance(uri, MemorySource) and isinstance(time, str) and schema is None:
                uri = uri.with_time(time)
        columns, format, guessed = self._schema(uri, schema, format, options, site)
        times = Timing(time, delay, watermark, idle, max_skew, align, in_order)
        times_of = timing(self.draft, times, columns, site)
        shed, whole = shedding(self.draft, shed, uri, columns, site)
        node = Read(
            name="",
            schema=whole,
            uri=uri,
            guessed=guessed,
            timed=time is not None,
            format=format,
            options=options,
            site=site,
            was=was,
            shed=shed,
            **times_of,
        )
        added = self.draft.add(node, chosen=name, kind="", place=place_name(uri, options))
        return Stream(self.draft, Edge(added))

    @property
    def dead(self) -> Stream:
        """The rows that could not be processed, and why: filter it, select from it, write it."""
        if self._dead is None:
            node = Dead(name="", schema=DEAD_SCHEMA, site=call_site())
            self._dead = Stream(self.draft, Edge(self.draft.add(node, chosen=None, kind=DEAD)))
        return self._dead

    def check(self) -> None:
        """Raise everything that is wrong with the program, at once."""
        if problems := check(self.draft):
            raise PlanError.of(problems)

    def program(self) -> Program:
        """The program as the engine will run it."""
        return build(self)

    def explain(self, guarantee: JobGuarantee | None = None) -> Explanation:
        """How the program will run: print it, or take its `.json`."""
        return explain(self.program(), guarantee)

    if not TYPE_CHECKING:

        def __getattr__(self, method: str) -> Any:
            if method == "run":
                raise UnknownNameError("HR-PLAN-060", "a job has no 'run'", "Use hr.run(job).",
                                       site=call_site())  # fmt: skip
            if type(self) is Job and method in ("spout", "bolt"):
                hint = 'Begin with hr.Topology("name"), which is a job of spouts and bolts.'
                raise UnknownNameError("HR-PLAN-060", f"a job has no {method!r}", hint,
                                       site=call_site())  # fmt: skip
            raise no_such_name("a job", method, dir(type(self)))

    def _schema(
        self,
        uri: object,
        schema: SchemaLike | None,
        format: str | None,
        options: Mapping[str, Any],
        site: Site | None,
    ) -> tuple[pa.Schema, str | None, bool]:
        with self.draft.attempt(site):
            check_place(uri, "read")
            if schema is not None:
                declared = schema_of(schema)
                with self.draft.attempt(site):
                    check_declared(uri, declared, format, options)
                return declared, format, False
            own, format, guessed = own_schema(uri, format, options)
            return schema_of(own), format, guessed
        return UNKNOWN, format, False


def _bad_settings(draft: Draft) -> list[PlanError]:
    """What is wrong with the job's own settings."""
    name = bad_name(draft.job, "a job")
    limit, slots = draft.dead_limit, draft.slots
    problems = [name] if name else []
    if draft.on_error not in ("dead", "fail"):
        problems.append(
            PlanError(
                "HR-PLAN-024",
                f"on_error is {draft.on_error!r}",
                'Pass on_error="dead" to set bad rows aside, or "fail" to stop at the first.',
            )
        )
    if limit is not None and not (
        (type(limit) is int and limit >= 1) or (type(limit) is float and 0 < limit < 1)
    ):
        problems.append(
            PlanError(
                "HR-PLAN-024",
                f"dead_limit is {limit!r}",
                "Give a number of rows, 1 or more, or a fraction between 0 and 1.",
            )
        )
    if slots is not None and not (type(slots) is int and 1 <= slots <= MOST_SLOTS):
        problems.append(
            PlanError(
                "HR-PLAN-024",
                f"slots is {slots!r}",
                f"Give a whole number from 1 to {MOST_SLOTS}, or leave it out.",
            )
        )
    if draft.guarantee is not None and draft.guarantee not in ASKED:
        problems.append(
            PlanError(
                "HR-PLAN-024",
                f"guarantee is {draft.guarantee!r}",
                'Pass "exactly_once", "at_least_once" or "at_most_once", or leave it out.',
            )
        )
    return problems
