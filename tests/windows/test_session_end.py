"""A session is open at the end that it shows, and over a millisecond later."""

from __future__ import annotations

from pathlib import Path

import headrace as hr
from headrace.testing import Driver


def test_a_session_is_open_while_the_watermark_is_at_its_end(tmp_path: Path) -> None:
    log = hr.EmbeddedLog(str(tmp_path / "log"))
    log.create("rows", schema="k string, at bigint")
    job = hr.Job("sessions")
    rows = job.read("log:rows", log=str(tmp_path / "log"), time="at", delay="500ms", name="rows")
    sessions = rows.key_by("k").window(hr.session("3500ms")).agg(n=hr.count())
    sessions.write("collect:", name="out")
    sessions.late.write("collect:", name="late")
    driver = Driver(job, tmp_path / "job", until=None)

    def send(k: str, at: int) -> list[tuple[str, int]]:
        log.append("rows", [{"k": k, "at": at}])
        driver.drain()
        return sorted((r["k"], r["n"]) for r in driver.output("out").to_pylist())

    assert send("a", 10_000) == []
    assert send("b", 14_000) == []  # the watermark is 13,500, where the session of a ends
    assert send("a", 13_500) == []  # so this row belongs to it: its end is 17,000 now
    assert send("b", 17_500) == []
    assert send("b", 17_501) == [("a", 2)]
    assert driver.output("late").num_rows == 0
