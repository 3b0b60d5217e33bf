"""Files as an output: sizes, merging, readers, owners, names, failures."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.sinks.writing import (
    ALONE,
    SCHEMA,
    expected,
    files,
    in_child,
    made,
    refusal,
    stage,
    table,
    values,
)

from headrace.schema import schema_of
from headrace.sinks import absolute, collected, merging, open_sink, output_files, read_output
from headrace.state import faults


def opened(tmp_path, schema=SCHEMA, name="o", job="job", path="out", **options):
    return open_sink(f"files:{tmp_path}/{path}", schema, options, str(tmp_path / job), name)


def visible(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if p.name[0] not in "._")


# Sizes


@pytest.mark.constants
def test_a_large_table_becomes_several_files_of_about_the_size_asked(tmp_path):
    rng = np.random.default_rng(7)
    schema = schema_of("x double")
    rows = pa.table({"x": rng.random(1_000_000)}, schema=schema)
    sink = opened(tmp_path, schema, target_file_mb=2)

    staged = sink.stage(rows, 0, "a")
    sink.publish(0, staged, ALONE)

    sizes = [p.stat().st_size / (1 << 20) for p in output_files(tmp_path / "out")]
    assert len(sizes) == len(staged) >= 3 and all(s < 4 for s in sizes)
    assert [r["rows"] for r in staged] == [
        pq.read_metadata(p).num_rows for p in output_files(tmp_path / "out")
    ]
    assert read_output(tmp_path / "out").num_rows == 1_000_000


@pytest.mark.constants
def test_small_files_are_merged_as_they_gather(tmp_path, hasty):
    output = files(tmp_path)
    for epoch in range(100):
        sink = output.open()
        sink.publish(epoch, stage(sink, epoch), ALONE)

    assert len(visible(tmp_path / "out")) < 40
    assert len(list((tmp_path / "out" / "_commits").iterdir())) < 25
    assert output.rows() == expected(100)
    merged = [n for n in visible(tmp_path / "out") if n.startswith("merged")]
    assert pq.read_metadata(tmp_path / "out" / merged[0]).num_row_groups == 1


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "text", "avro"])
def test_few_rows_that_are_wide_become_files_of_about_the_size_asked(tmp_path, format):
    draw = np.random.default_rng(5)
    texts = [draw.bytes(5_000).hex() for _ in range(400)]  # 4 MB
    schema = schema_of("text string")
    sink = opened(tmp_path, schema, format=format, target_file_mb=0.5, merge=False)
    sink.open()
    sink.publish(1, sink.stage(pa.table({"text": texts}, schema), 1, "a"), ALONE)

    sizes = sorted(path.stat().st_size for path in (tmp_path / "out").glob("part-*"))
    assert 0.1 * (1 << 20) < sizes[1] <= sizes[-1] < 0.75 * (1 << 20)
    assert read_output(str(tmp_path / "out"))["text"].to_pylist() == texts


def test_merged_files_are_merged_again_a_level_higher(tmp_path, eager, hasty):
    output = files(tmp_path)
    for epoch in range(32):
        sink = output.open()
        sink.publish(epoch, stage(sink, epoch, 1), ALONE)

    assert output.rows() == expected(32, 1)
    assert len(visible(tmp_path / "out")) <= 6  # a handful, as in counting by twos


@pytest.mark.constants
def test_full_files_are_left_alone(tmp_path, eager):
    sink = opened(tmp_path, target_file_mb=0.0001)
    for epoch in range(8):
        sink.publish(epoch, stage(sink, epoch), ALONE)

    assert len(visible(tmp_path / "out")) == 16
    assert values(read_output(tmp_path / "out")) == expected(8)


def test_merging_can_be_turned_off(tmp_path, eager):
    sink = opened(tmp_path, merge=False)
    for epoch in range(8):
        sink.publish(epoch, stage(sink, epoch), ALONE)

    assert len(visible(tmp_path / "out")) == 16
    assert len(list((tmp_path / "out" / "_commits").iterdir())) <= 4
    assert values(read_output(tmp_path / "out")) == expected(8)


def test_files_of_different_columns_are_not_merged_into_one(tmp_path, eager):
    old = opened(tmp_path, schema_of("n bigint"))
    for epoch in range(3):
        old.publish(epoch, old.stage(pa.table({"n": [epoch]}), epoch, "a"), ALONE)
    new = opened(tmp_path)
    made(new)
    for epoch in range(3, 9):
        new.publish(epoch, stage(new, epoch, 1), ALONE)

    found = read_output(tmp_path / "out")

    assert sorted(found["n"].to_pylist())[:3] == [0, 1, 2]
    assert found.num_rows == 3 + 6 * 3
    assert found["text"].null_count == 3


# Readers


def killed_at(wanted: str) -> Callable[[str], None]:
    def pass_by(name: str) -> None:
        if name == wanted:
            raise KeyboardInterrupt(name)

    return pass_by


def test_a_reader_sees_whole_epochs_and_every_row_once_while_files_are_merged(
    tmp_path, eager, hasty
):
    output = files(tmp_path)
    made(output.open())
    done, failures, sights = threading.Event(), [], 0

    def read() -> None:
        nonlocal sights
        while not done.is_set():
            rows = output.rows()
            sights += 1
            epochs = len({r[0] for r in rows})
            if rows != expected(epochs):
                failures.append(rows)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for epoch in range(30):
        sink = output.open()
        sink.publish(epoch, stage(sink, epoch), ALONE)
    done.set()
    reader.join()

    assert not failures and sights
    assert output.rows() == expected(30)


def test_an_epoch_that_is_half_renamed_is_not_seen(tmp_path):
    output = files(tmp_path)
    sink = output.open()
    made(sink)
    staged = stage(sink, 0)
    with pytest.raises(KeyboardInterrupt), faults.hooked(killed_at("sink.publish.file")):
        sink.publish(0, staged, ALONE)

    assert visible(tmp_path / "out") and output.rows() == []


def test_an_output_without_rows_still_has_its_columns(tmp_path):
    for format in ("parquet", "json"):
        made(opened(tmp_path, path=format, format=format))
        assert read_output(tmp_path / format).schema == SCHEMA


def test_json_lines_bring_every_type_back(tmp_path):
    schema = schema_of(
        "b boolean, i int, d double, s string, y binary, t timestamp, day date, m decimal(9,2), "
        "l array<bigint>, r struct<a bigint, b string>"
    )
    row = dict(zip(schema.names, [True, 7, 0.1, 'q"\n', b"\xff\0", 5_000_000, 3, None, [1, None],
                                  {"a": 1, "b": None}], strict=True))  # fmt: skip
    rows = pa.Table.from_pylist([row, dict.fromkeys(schema.names)], schema)
    sink = opened(tmp_path, schema, format="json")
    sink.publish(0, sink.stage(rows, 0, "a"), ALONE)

    assert read_output(tmp_path / "out") == rows


@pytest.mark.parametrize("format", ["parquet", "json", None])
def test_rows_with_several_dictionaries_can_be_written(tmp_path, eager, format):
    words = [pa.array([k, "z", None]).dictionary_encode() for k in "abc"]
    numbers = [pa.array([i, 9, None]).dictionary_encode() for i in range(3)]
    within = [pa.StructArray.from_arrays([w], ["w"]) for w in words]
    lists = [pa.ListArray.from_arrays([0, 2, 2, 3], w) for w in words]
    pieces = [
        pa.table(list(columns), ["k", "n", "r", "l"])
        for columns in zip(words, numbers, within, lists, strict=True)
    ]
    schema = pieces[0].schema
    collects = open_sink("collect:", schema, {}, str(tmp_path / "job"), "o")
    sink = opened(tmp_path, schema, format=format) if format else collects
    for epoch, rows in enumerate([pa.concat_tables(pieces), *pieces]):
        sink.publish(epoch, sink.stage(rows, epoch, "a"), ALONE)

    given = read_output(tmp_path / "out") if format else collected(tmp_path / "job", "o")
    wanted = [row for piece in [*pieces, *pieces] for row in piece.to_pylist()]
    assert sorted(map(str, given.to_pylist())) == sorted(map(str, wanted))


def test_what_is_no_output_cannot_be_read(tmp_path):
    assert refusal(read_output, tmp_path).code == "HR-OUTPUT-009"


def test_a_file_that_somebody_removed_is_missed(tmp_path):
    sink = opened(tmp_path)
    sink.publish(0, stage(sink, 0), ALONE)
    output_files(tmp_path / "out")[0].unlink()

    assert refusal(read_output, tmp_path / "out").code == "HR-OUTPUT-005"


# Owners


def test_another_jobs_files_are_not_mixed_with_ours_unawares(tmp_path):
    mine = opened(tmp_path)
    made(mine)
    mine.publish(0, stage(mine, 0), ALONE)
    made(mine)
    theirs = opened(tmp_path, job="another")

    error = refusal(theirs.check)

    assert not (tmp_path / "another").exists()
    assert error.code == "HR-OUTPUT-004" and str(tmp_path / "out") in error.message
    assert "--folder" in error.hint and "emove" not in error.hint  # that would destroy its rows
    assert 'mode="append"' in str(error.hint)


def test_a_job_that_begins_anew_does_not_take_its_old_epochs_for_done(tmp_path):
    mine = opened(tmp_path)
    mine.publish(0, stage(mine, 0), ALONE)
    shutil.rmtree(tmp_path / "job")
    again = opened(tmp_path, mode="append")
    made(again)

    again.publish(0, stage(again, 0), ALONE)

    assert len(read_output(tmp_path / "out")) == 2 * len(expected(1))


def test_two_outputs_of_a_job_may_share_a_folder(tmp_path):
    one, two = opened(tmp_path, name="one"), opened(tmp_path, name="two")
    for sink, attempt in ((one, "x"), (two, "x")):
        made(sink)
        for epoch in range(2):
            sink.publish(epoch, stage(sink, epoch, attempt=attempt), ALONE)

    assert len(read_output(tmp_path / "out")) == 2 * len(expected(2))


# Names


@pytest.mark.parametrize("name", ["../x", "a b", "it's", 'a"b', "a;b", "..", "", "é\n", "/etc"])
def test_outputs_of_any_name_stay_where_they_belong(tmp_path, name):
    for uri in (f"files:{tmp_path}/out", "collect:", "console:"):
        options = {"stream": open(os.devnull, "w")} if uri == "console:" else {}  # noqa: SIM115
        sink = open_sink(uri, SCHEMA, options, str(tmp_path / "job"), name)
        made(sink)
        sink.publish(0, sink.stage(table(0, 1), 0, f"{name}/{name}"), ALONE)
        if options:
            options["stream"].close()

    assert sorted(p.name for p in tmp_path.iterdir()) == ["job", "out"]
    inside = {p.name for p in (tmp_path / "job").iterdir()}
    assert inside == {"outputs", "collect", "staged"}
    assert all(len(list((tmp_path / "job" / d).iterdir())) == 1 for d in inside), inside


@pytest.mark.parametrize("name", ["a b", "it's", 'a"b; rm', "[x]*?", "é"])
def test_any_folder_can_be_written(tmp_path, name):
    sink = opened(tmp_path, path=name)
    made(sink)
    sink.publish(0, stage(sink, 0), ALONE)

    assert values(read_output(tmp_path / name)) == expected(1)


@pytest.mark.parametrize("name", ["../../evil", "part-/../../evil", "evil"])
def test_a_manifest_that_names_files_elsewhere_is_refused(tmp_path, name):
    sink = opened(tmp_path)
    staged = stage(sink, 0)
    staged[0]["file"] = name

    assert refusal(sink.publish, 0, staged, ALONE).code == "HR-OUTPUT-007"


def test_a_relative_path_can_be_made_to_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    assert absolute("files:a b") == f"files:{tmp_path}/a b"
    assert absolute("log:t") == "log:t"


# Failures


@pytest.mark.constants
@pytest.mark.parametrize("format", ["parquet", "json"])
def test_a_full_disk_is_named_and_nothing_is_left_behind(tmp_path, format):
    schema = schema_of("x double")
    rows = pa.table({"x": np.random.default_rng(1).random(200_000)}, schema=schema)
    sink = opened(tmp_path, schema, format=format)
    made(sink)

    with no_file_larger_than(50_000):
        error = refusal(sink.stage, rows, 0, "a")

    assert error.code == "HR-OUTPUT-003" and str(tmp_path / "out") in error.message
    assert list((tmp_path / "out").rglob("part-*")) == []
    sink.publish(0, sink.stage(rows, 0, "a"), ALONE)
    assert read_output(tmp_path / "out").num_rows == 200_000


class no_file_larger_than:
    """As if the disk were full: the system refuses to make files longer."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __enter__(self) -> None:
        self._old = resource.getrlimit(resource.RLIMIT_FSIZE)
        self._handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self._size, self._old[1]))

    def __exit__(self, *_: object) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self._old)
        signal.signal(signal.SIGXFSZ, self._handler)


@pytest.fixture
def public() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp())
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def test_a_folder_without_permission_is_named(public):
    (public / "job").mkdir(mode=0o777)
    (public / "job").chmod(0o777)
    sink = opened(public)

    error = as_nobody(sink.check)

    assert "HR-OUTPUT-002" in error and str(public / "out") in error


def as_nobody(call: Callable[[], object]) -> str:
    """What `call` raises when it is not root that calls."""

    def without_power() -> None:
        if os.getuid() == 0:
            os.setuid(65_534)
        call()

    return in_child(without_power)[1]


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "out").write_text("hello")

    error = refusal(opened(tmp_path).check)

    assert error.code == "HR-OUTPUT-009" and str(tmp_path / "out") in error.message
    (tmp_path / "file").write_text("")
    assert refusal(opened(tmp_path, path="file/deeper").check).code == "HR-OUTPUT-009"


def test_a_staged_file_that_is_gone_is_named(tmp_path):
    sink = opened(tmp_path)
    staged = stage(sink, 0)
    shutil.rmtree(tmp_path / "out" / "_staging")

    error = refusal(sink.publish, 0, staged, ALONE)

    assert error.code == "HR-OUTPUT-005" and staged[0]["file"] in error.message


def test_a_damaged_record_is_named(tmp_path, eager):
    sink = opened(tmp_path)
    sink.publish(0, stage(sink, 0), ALONE)
    (record,) = (tmp_path / "out" / "_commits").glob("*.json")
    content = bytearray(record.read_bytes())
    content[-20] ^= 1
    record.write_bytes(content)

    assert refusal(read_output, tmp_path / "out").code == "HR-OUTPUT-007"
    assert refusal(sink.publish, 1, stage(sink, 1), ALONE).code == "HR-OUTPUT-007"


def test_columns_that_parquet_cannot_hold_are_refused(tmp_path):
    union = pa.dense_union([pa.field("a", pa.int64()), pa.field("b", pa.string())])
    schema = pa.schema([("u", union)])

    assert refusal(opened(tmp_path, schema).check).code == "HR-OUTPUT-006"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"target_file": 5}, "target_file_mb"),
        ({"target_file_mb": 0}, "above 0"),
        ({"target_file_mb": "big"}, "above 0"),
        ({"format": "orc"}, "parquet"),
        ({"mode": "overwrite"}, "append"),
    ],
)
def test_options_that_make_no_sense_are_refused(tmp_path, options, word):
    error = refusal(opened, tmp_path, **options)

    assert error.code == "HR-OUTPUT-008" and word in str(error.hint)


@pytest.mark.parametrize(
    ("uri", "meant"),
    [
        ("postgres://me@localhost/shop", "sql:"), ("duckdb:shop.duckdb", "sql:"),
        ("https://example.org/hook", "webhook:"), ("socket:localhost:9999", "acknowledges"),
        ("s3://bucket/out", "delta:s3://"),
    ],
)  # fmt: skip
def test_what_has_another_name_here_is_told(tmp_path, uri, meant):
    error = refusal(open_sink, uri, SCHEMA, {}, str(tmp_path), "o")

    assert error.code == "HR-OUTPUT-001" and meant in error.hint.partition("known are")[0]


@pytest.mark.parametrize("uri", ["", "out.parquet", "s3:x", "files:"])
def test_what_is_no_output_is_refused(tmp_path, uri):
    error = refusal(open_sink, uri, SCHEMA, {}, str(tmp_path), "o")

    assert error.code == "HR-OUTPUT-001"


@pytest.mark.constants
def test_the_work_of_one_merge_is_bounded(tmp_path, monkeypatch, hasty):
    monkeypatch.setattr(merging, "MANY", 10)
    sink = opened(tmp_path)
    for epoch in range(16):
        sink.publish(epoch, stage(sink, epoch), ALONE)

    merged = [n for n in visible(tmp_path / "out") if n.startswith("merged")]
    assert len(merged) == 1
    assert pq.read_metadata(tmp_path / "out" / merged[0]).num_rows == 10 * 3
