"""Files of runs: what is read is what was written, or an error that says so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import StateError
from headrace.hashing import hash_keys, slots_of
from headrace.state import (
    RUNS,
    RunCache,
    RunRef,
    RunWriter,
    Segment,
    SlotState,
    TableSpec,
    cache_of,
    load,
    runs,
)

SPEC = TableSpec("t", pa.schema([("k", pa.string())]), pa.schema([("x", pa.float64())]))
TIMED = TableSpec("t", pa.schema([("k", pa.int64())]), pa.schema([("x", pa.int64())]), timed=True)


def run_of(keys: list[str]) -> pa.Table:
    column = pa.array(keys, pa.string())
    table = pa.table({"__h": hash_keys([column]), "k": column, "x": np.arange(len(keys)) * 0.5})
    gone = pa.array(np.arange(len(keys)) % 3 == 2)
    return table.append_column("__gone", gone).sort_by("__h").cast(SPEC.run)


def timed_run(times: list[int], keys: list[int]) -> pa.Table:
    column = pa.array(keys, pa.int64())
    table = pa.table({"__t": times, "__h": hash_keys([column]), "k": column, "x": keys})
    gone = pa.array(np.zeros(len(keys), bool))
    order = [("__t", "ascending"), ("__h", "ascending")]
    return table.append_column("__gone", gone).sort_by(order).cast(TIMED.run)


def write(folder: Path, *tables: pa.Table, slots: int = 4, name: str = "one") -> list[RunRef]:
    writer = RunWriter(folder, name)
    refs = [writer.add(table, 0, slots) for table in tables]
    writer.close()
    return refs


def code_of(ref: RunRef, folder: Path, spec: TableSpec = SPEC) -> str:
    with pytest.raises(StateError) as caught:
        RunCache(folder).open(ref, spec)
    assert ref.file in caught.value.message and caught.value.hint
    return caught.value.code


def test_runs_come_back_as_they_were_written_without_a_copy(tmp_path):
    tables = [run_of(["a", "b", None]), run_of([f"key {i}" for i in range(1_000)])]
    refs = write(tmp_path, *tables)
    before = pa.total_allocated_bytes()
    opened = [RunCache(tmp_path).open(ref, SPEC) for ref in refs]
    assert pa.total_allocated_bytes() - before < 1_000  # mapped, not read
    assert [run.table for run in opened] == tables
    assert all(ref.offset % 64 == 0 for ref in refs)
    assert [ref.rows for ref in refs] == [3, 1_000]
    assert [RunRef.from_json(ref.to_json()) for ref in refs] == refs


def test_a_reference_knows_the_last_time_in_its_run(tmp_path):
    refs = write(tmp_path, timed_run([5, 3, 9], [1, 2, 3]), run_of(["a"]))
    assert [ref.max_time for ref in refs] == [9, None]


def test_a_writer_without_runs_leaves_no_file(tmp_path):
    assert write(tmp_path) == []
    assert not (tmp_path / RUNS).exists()


def test_a_name_is_used_once(tmp_path):
    write(tmp_path, run_of(["a"]))
    with pytest.raises(StateError) as caught:
        write(tmp_path, run_of(["b"]))
    assert caught.value.code == "HR-STATE-006"


def test_a_missing_file_is_named(tmp_path):
    (ref,) = write(tmp_path, run_of(["a"]))
    (tmp_path / RUNS / ref.file).unlink()
    assert code_of(ref, tmp_path) == "HR-STATE-003"


def test_a_run_of_other_columns_is_refused(tmp_path):
    (ref,) = write(tmp_path, run_of(["a"]))
    assert code_of(ref, tmp_path, TIMED) == "HR-STATE-005"
    cache = RunCache(tmp_path)
    cache.open(ref, SPEC)
    with pytest.raises(StateError) as caught:
        cache.open(ref, TIMED)
    assert caught.value.code == "HR-STATE-005"


def test_a_file_of_a_later_format_is_refused(tmp_path):
    (ref,) = write(tmp_path, run_of(["a"]))
    path = tmp_path / RUNS / ref.file
    path.write_bytes(path.read_bytes().replace(b"format 1", b"format 2"))
    assert code_of(ref, tmp_path) == "HR-STATE-002"


def test_a_flipped_bit_is_an_error_or_changes_nothing(tmp_path):
    tables = [run_of(["a", "b"]), run_of(["c"])]
    refs = write(tmp_path, *tables)
    path = tmp_path / RUNS / refs[0].file
    whole = path.read_bytes()
    blocks = [range(ref.offset, ref.offset + ref.length) for ref in refs]
    for at in range(0, len(whole), 3):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        for ref, table, block in zip(refs, tables, blocks, strict=True):
            if at < 64 or at in block:
                assert code_of(ref, tmp_path) in ("HR-STATE-002", "HR-STATE-004")
            else:
                assert RunCache(tmp_path).open(ref, SPEC).table == table


def test_a_truncated_file_is_an_error_or_has_lost_nothing(tmp_path):
    (ref,) = write(tmp_path, run_of(["a", "b"]))
    path = tmp_path / RUNS / ref.file
    whole = path.read_bytes()
    for size in range(0, ref.offset + ref.length, 5):
        path.write_bytes(whole[:size])
        assert code_of(ref, tmp_path) in ("HR-STATE-004", "HR-STATE-006")
    path.write_bytes(whole[: ref.offset + ref.length])
    assert RunCache(tmp_path).open(ref, SPEC).table == run_of(["a", "b"])


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    keys=st.lists(st.integers(0, 500), unique=True, max_size=60),
    bounds=st.tuples(st.integers(0, 9), st.integers(0, 9)).map(sorted),
    timed=st.booleans(),
    floor=st.integers(0, 6),
)
def test_a_task_loads_the_rows_of_its_slots_only(keys, bounds, timed, floor, tmp_path_factory):
    folder, slots, (lo, hi) = tmp_path_factory.mktemp("job"), 9, bounds
    spec = TIMED if timed else SPEC
    times = [k % 7 for k in keys]
    table = timed_run(times, keys) if timed else run_of([str(k) for k in keys])
    (ref,) = write(folder, table, slots=slots)
    state = SlotState((Segment(0, slots, (ref,), floor),))
    loaded = load(spec, state, lo, hi, slots, RunCache(folder))
    slot = slots_of(np.array(table["__h"].to_pylist(), np.uint64), slots)
    mine = (slot >= lo) & (slot < hi)
    if timed:
        mine &= np.array(table["__t"].to_pylist(), np.int64) >= floor
    expected = table.filter(pa.array(mine)) if lo < hi else table.slice(0, 0)
    found = [run.slice() for run in loaded] or [table.slice(0, 0)]
    assert pa.concat_tables(found) == expected


@pytest.mark.constants
def test_the_cache_lets_go_of_files_that_were_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "_LOOK", 4)
    kept, *others = [write(tmp_path, run_of([str(i)]), name=str(i))[0] for i in range(40)]
    cache = RunCache(tmp_path)
    cache.open(kept, SPEC)
    for ref in others:
        cache.open(ref, SPEC)
        (tmp_path / RUNS / ref.file).unlink()
    held = [key[0] for key in cache._entries]
    assert kept.file in held and len(held) <= 5
    assert cache._bytes == sum(length for _, length in cache._entries.values())


def test_the_cache_holds_no_more_bytes_than_it_may(tmp_path):
    refs = write(tmp_path, *(run_of([str(i)]) for i in range(10)))
    cache = RunCache(tmp_path, most=3 * refs[0].length)
    for ref in refs:
        assert cache.open(ref, SPEC).table.num_rows == 1
    assert len(cache._entries) == 3


def test_a_folder_that_was_emptied_and_filled_again_is_read_anew(tmp_path):
    cache = RunCache(tmp_path)
    for keys in (["a", "b"], ["c", "d"]):
        (ref,) = write(tmp_path, run_of(keys))
        assert sorted(cache.open(ref, SPEC).table["k"].to_pylist()) == keys
        (tmp_path / RUNS / ref.file).unlink()


def test_a_process_has_one_cache_per_folder(tmp_path):
    assert cache_of(str(tmp_path)) is cache_of(str(tmp_path))
