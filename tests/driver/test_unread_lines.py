"""Lines that were received before anything was committed are read, or the start is refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headrace as hr
from headrace.driver.start import review
from headrace.driver.start_checks import Consent, refuse
from headrace.errors import HeadraceError
from headrace.sources.received import LineWriter
from headrace.testing import Driver


def job(name: str, was: str | None = None) -> hr.Job:
    made = hr.Job("lines")
    rows = made.read("socket:127.0.0.1:9", schema="a bigint", format="json", name=name, was=was)
    rows.write("collect:", name="out")
    return made


@pytest.mark.parametrize("was", ["heard", None])
def test_an_input_that_is_renamed_before_the_first_batch_is_refused(
    tmp_path: Path, was: str | None
) -> None:
    folder = tmp_path / "job"
    writer = LineWriter(folder / "inputs" / "heard")
    writer.add(pa.array([b'{"a": 1}']))
    writer.close()
    before = {p: p.is_file() and p.read_bytes() for p in tmp_path.rglob("*")}

    with pytest.raises(HeadraceError, match="'heard' has received lines") as planned:
        refuse(review(job("other", was).program(), str(folder)), Consent())
    with pytest.raises(HeadraceError) as started:
        Driver(job("other", was), folder, until=None)

    assert planned.value.code == started.value.code == "HR-STATE-026"
    assert {p: p.is_file() and p.read_bytes() for p in tmp_path.rglob("*")} == before
    refuse(review(job("heard").program(), str(folder)), Consent())
