"""`headrace warm`: make every later start of Spark quicker."""

from __future__ import annotations

from tempfile import TemporaryDirectory

import typer

import headrace as hr


def warm() -> None:
    """Make a class archive for Spark's JVM: once per installation; halves every later start.

    Takes about half a minute, and 170 MB with the installed package or, where that cannot be
    written, in your cache. Once more after an upgrade of Java or PySpark.
    """
    from headrace.engine.archive import record

    typer.echo("making a class archive for Spark (about half a minute)", err=True)
    typer.echo(f"made {record(_tiny_job)}")


def _tiny_job() -> None:
    job = hr.Job("warm")
    source = hr.rows([{"k": "a", "at": 0}], "k string, at bigint")
    rows = job.read(source, time="at", delay="1s", name="rows")
    counts = rows.key_by("k").window(hr.tumbling("1s")).agg(n=hr.count())
    counts.write("collect:", name="counts")
    with TemporaryDirectory() as folder:
        hr.run(job, folder=folder, until="end", master="local[2]", quiet=True).wait()
