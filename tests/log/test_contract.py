"""What every log promises, whatever it keeps its records in."""

from __future__ import annotations

import os
import pickle
import threading

import numpy as np
import pyarrow as pa
import pytest

from headrace.errors import LogError
from headrace.log import APPEND_TIME

SCHEMA = "area string, celsius double"


def values(log, topic, partition=0, start=0, end=None):
    return [v for _, t in log.read(topic, partition, start, end) for v in t["value"].to_pylist()]


def rows(log, topic, partition=0, start=0, end=None):
    return [r for _, t in log.read(topic, partition, start, end) for r in t.to_pylist()]


def refusal(call, *args, **kwargs) -> LogError:
    with pytest.raises(LogError) as caught:
        call(*args, **kwargs)
    assert caught.value.hint
    return caught.value


# Topics


def test_a_new_topic_is_empty_and_described(log):
    info = log.create("t", 3, SCHEMA, key="area", retention="7d", retention_bytes=10**9)

    assert info == log.describe("t")
    assert (info.name, info.partitions, info.key) == ("t", 3, "area")
    assert (info.retention_ms, info.retention_bytes) == (7 * 86_400_000, 10**9)
    assert info.schema == pa.schema([("area", pa.string()), ("celsius", pa.float64())])
    assert info.earliest == info.latest == info.bytes == (0, 0, 0)
    assert log.earliest("t") == log.latest("t") == {0: 0, 1: 0, 2: 0}


def test_topics_are_listed_by_name(log):
    assert log.topics() == []
    for name in ("b", "a.b-c_D9", "_x"):
        log.create(name)
    assert log.topics() == ["_x", "a.b-c_D9", "b"]


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", ".a", "a b", "ä", "-a", "a" * 201, None]
)
def test_a_name_that_could_be_a_path_is_refused(log, name):
    assert refusal(log.create, name).code == "HR-LOG-001"
    assert refusal(log.latest, name).code == "HR-LOG-001"


def test_a_second_topic_of_the_same_name_is_refused_and_the_first_unharmed(log):
    log.create("t")
    log.append("t", [b"x"])
    assert refusal(log.create, "t", 4).code == "HR-LOG-003"
    assert values(log, "t") == [b"x"]


def test_exist_ok_takes_a_topic_of_the_same_columns_and_refuses_another(log):
    log.create("t", 2, SCHEMA)
    assert log.create("t", 2, SCHEMA, exist_ok=True).partitions == 2
    assert refusal(log.create, "t", 2, exist_ok=True).code == "HR-LOG-003"


@pytest.mark.parametrize(
    "settings",
    [
        {"partitions": 0}, {"partitions": 1.5}, {"partitions": True}, {"retention_bytes": 0},
        {"retention": "0s"}, {"key": "area"}, {"schema": SCHEMA, "key": "nope"},
        {"schema": "a array<int>", "key": "a"},
        {"schema": pa.schema([("a", pa.list_(pa.dictionary(pa.int8(), pa.string())))])},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(log, settings):
    assert refusal(log.create, "t", **settings).code == "HR-LOG-004"
    assert log.topics() == []


def test_an_unknown_topic_is_an_error_that_knows_a_similar_name(log):
    log.create("temperatures")
    for call in (log.latest, log.earliest, log.describe, log.delete, log.sweep):
        error = refusal(call, "temperature")
        assert error.code == "HR-LOG-002"
        assert "temperatures" in error.hint
    assert refusal(log.append, "temperature", [b"x"]).code == "HR-LOG-002"
    assert refusal(log.read, "temperature", 0, 0).code == "HR-LOG-002"


def test_a_deleted_topic_is_gone_for_everybody_and_can_be_made_anew(log, reopen):
    other = reopen()
    log.create("t")
    other.append("t", [b"old"])
    log.delete("t")

    assert refusal(other.latest, "t").code == "HR-LOG-002"
    assert refusal(other.append, "t", [b"x"]).code == "HR-LOG-002"
    assert log.topics() == []

    log.create("t", 2)
    assert other.latest("t") == {0: 0, 1: 0}
    other.append("t", [b"new"], partition=1)
    assert values(log, "t", 1) == [b"new"]


def test_a_reader_that_lags_behind_a_deletion_is_told(log):
    log.create("t")
    log.append("t", [b"x"])
    reading = log.read("t", 0, 0)
    log.delete("t")
    log.create("t")
    log.append("t", [b"y"])
    assert refusal(lambda: list(reading)).code == "HR-LOG-002"


# Appending and reading


def test_records_come_back_in_order_with_their_offsets(log):
    log.create("t")
    assert log.append("t", [b"a", b"b"]) == {0: (0, 2)}
    assert log.append("t", [b"c"]) == {0: (2, 3)}
    assert log.latest("t") == {0: 3}
    assert [(o, t["value"].to_pylist()) for o, t in log.read("t", 0, 0)] == [
        (0, [b"a", b"b", b"c"])
    ]


def test_any_range_can_be_read(log):
    log.create("t")
    for i in range(0, 20, 5):
        log.append("t", [b"%d" % j for j in range(i, i + 5)])
    everything = [b"%d" % i for i in range(20)]
    for start in range(21):
        for end in range(start, 21):
            assert values(log, "t", 0, start, end) == everything[start:end]


def test_max_rows_limits_the_whole_reading(log):
    log.create("t")
    log.append("t", [b"%d" % i for i in range(10)])
    assert [t.num_rows for _, t in log.read("t", 0, 3, max_rows=4)] == [4]
    assert [t.num_rows for _, t in log.read("t", 0, 8, max_rows=4)] == [2]


def test_a_byte_topic_takes_bytes_text_and_dictionaries_as_json(log):
    log.create("t")
    log.append("t", [b"\xff\x00", "grün", {"a": 1, "b": "ö"}, None])
    assert values(log, "t") == [b"\xff\x00", "grün".encode(), '{"a": 1, "b": "ö"}'.encode(), None]


def test_a_byte_topic_keeps_keys(log):
    log.create("t")
    log.append("t", [b"1", b"2"], key=["a", None])
    log.append("t", pa.table({"value": ["3"], "key": [b"c"]}))
    log.append("t", pa.table({"value": ["4"]}))
    assert rows(log, "t") == [
        {"key": b"a", "value": b"1"}, {"key": None, "value": b"2"},
        {"key": b"c", "value": b"3"}, {"key": None, "value": b"4"},
    ]  # fmt: skip


def test_a_typed_topic_takes_tables_dictionaries_and_tuples(log):
    log.create("t", 1, SCHEMA)
    log.append("t", pa.table({"celsius": pa.array([1], pa.int8()), "area": ["a"]}))
    log.append("t", [{"area": "b", "celsius": 2.5}, {"area": "c"}])
    log.append("t", [("d", 4)])
    log.append("t", pa.record_batch({"area": ["e"], "celsius": [None]}))
    assert [tuple(r.values()) for r in rows(log, "t")] == [
        ("a", 1.0), ("b", 2.5), ("c", None), ("d", 4.0), ("e", None),
    ]  # fmt: skip


def test_every_type_comes_back_as_it_went_in(log):
    schema = (
        "a boolean, b tinyint, c smallint, d int, e bigint, f float, g double, h string, "
        "i binary, j date, k timestamp, l decimal(10,2), m array<string>, "
        "n map<string, int>, o struct<x int, y array<double>>"
    )
    columns = log.create("t", 1, schema).schema
    row = [True, 1, 2, 3, 2**62, 0.5, 1e300, "hé", b"\0", 10, 10**15, None, ["x", None], None,
           {"x": 1, "y": [0.5]}]  # fmt: skip
    table = pa.table(
        [pa.array([v, None], f.type) for v, f in zip(row, columns, strict=True)], schema=columns
    )
    log.append("t", table)
    [(_, back)] = log.read("t", 0, 0)
    assert back == table
    assert back.schema == columns


def test_a_dictionary_encoded_column_is_kept_as_plain_values(log):
    encoded = pa.table({"a": pa.array(["x", "y", "x"]).dictionary_encode()})
    assert log.create("t", 1, encoded.schema).schema.field("a").type == pa.string()
    log.append("t", encoded)
    assert [r["a"] for r in rows(log, "t")] == ["x", "y", "x"]


def test_a_large_append_is_read_in_chunks_that_join_without_a_gap(log):
    log.create("t", 1, "n bigint, s string")
    n = 700_001
    log.append("t", pa.table({"n": np.arange(n), "s": pa.array(["x"] * n)}))
    offset = 0
    for first, table in log.read("t", 0, 0):
        assert first == offset
        assert table.num_rows <= 256 * 1024
        assert table["n"][0].as_py() == first
        offset += table.num_rows
    assert offset == n
    assert [t["n"].to_pylist() for _, t in log.read("t", 0, 600_000, 600_003)] == [
        [600_000, 600_001, 600_002]
    ]


def test_many_small_appends_are_read_as_one_table(log):
    log.create("t")
    for i in range(50):
        log.append("t", [b"%d" % i])
    [(first, table)] = log.read("t", 0, 10)
    assert (first, table.num_rows, table["value"].num_chunks) == (10, 40, 1)


def test_nothing_appended_is_nothing_done(log):
    log.create("t", 2, SCHEMA)
    assert log.append("t", []) == {}
    assert log.append("t", pa.table({"area": [], "celsius": []})) == {}
    assert log.latest("t") == {0: 0, 1: 0}
    assert list(log.read("t", 0, 0)) == []


@pytest.mark.parametrize(("start", "end"), [(-1, None), (4, None), (0, 4), (2, 1)])
def test_an_offset_that_is_not_there_is_an_error_that_says_what_is(log, start, end):
    log.create("t")
    log.append("t", [b"a", b"b", b"c"])
    error = refusal(log.read, "t", 0, start, end)
    assert error.code == "HR-LOG-007"
    assert "0 (the earliest stored) to 3" in error.hint


@pytest.mark.parametrize("partition", [-1, 2, None, "0"])
def test_a_partition_that_is_not_there_is_refused(log, partition):
    log.create("t", 2)
    assert refusal(log.read, "t", partition, 0).code == "HR-LOG-005"
    assert refusal(log.offset_for_time, "t", partition, 0).code == "HR-LOG-005"
    if partition is not None:
        assert refusal(log.append, "t", [b"x"], partition=partition).code == "HR-LOG-005"


def test_another_opening_sees_what_was_appended_at_once(log, reopen):
    other = reopen()
    log.create("t")
    for i in range(5):
        log.append("t", [b"%d" % i])
        assert other.latest("t") == {0: i + 1}
        assert values(other, "t", 0, i) == [b"%d" % i]


def test_a_log_can_be_sent_to_another_process(log):
    log.create("t")
    log.append("t", [b"x"])
    assert values(pickle.loads(pickle.dumps(log)), "t") == [b"x"]


def test_threads_append_whole_and_in_their_own_order(log):
    log.create("t", 2, "thread int, n int")

    def produce(thread: int) -> None:
        for n in range(20):
            log.append("t", [(thread, n), (thread, n)], partition=n % 2)

    threads = [threading.Thread(target=produce, args=(t,)) for t in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert log.latest("t") == {0: 160, 1: 160}
    for partition in (0, 1):
        found = [(r["thread"], r["n"]) for r in rows(log, "t", partition)]
        assert found[::2] == found[1::2]
        for thread in range(8):
            assert [n for t, n in found[::2] if t == thread] == list(range(partition, 20, 2))


# Which partition


def test_records_are_dealt_out_in_turn_when_nothing_says_otherwise(log):
    log.create("t", 3)
    log.append("t", [b"0", b"1", b"2", b"3"])
    assert [values(log, "t", p) for p in range(3)] == [[b"0", b"3"], [b"1"], [b"2"]]
    for _ in range(3):
        log.append("t", [b"x"])
    assert sorted(log.latest("t").values()) == [2, 2, 3]


def test_equal_keys_go_to_one_partition_in_order(log):
    log.create("t", 4, "area string, n int", key="area")
    for n in range(10):
        log.append("t", [{"area": f"a{k}", "n": n} for k in range(20)])
    homes = {}
    for partition in range(4):
        for row in rows(log, "t", partition):
            homes.setdefault(row["area"], []).append((partition, row["n"]))
    assert len(homes) == 20
    assert len({seen[0][0] for seen in homes.values()}) > 1
    for seen in homes.values():
        assert {p for p, _ in seen} == {seen[0][0]}
        assert [n for _, n in seen] == list(range(10))


def test_a_key_may_be_a_column_or_one_value_per_record(log):
    log.create("typed", 8, "area string, n int")
    log.create("bytes", 8)
    log.append("typed", [("a", 1), ("b", 2), ("a", 3)], key="area")
    log.append("typed", [("x", 4), ("x", 5)], key=["a", "b"])
    by_column = {r["n"]: p for p in range(8) for r in rows(log, "typed", p)}
    assert by_column[1] == by_column[3] == by_column[4]
    assert by_column[2] == by_column[5]

    log.append("bytes", [b"1", b"2"], key=["k", "k"])
    log.append("bytes", [b"3"], key=[b"k"])
    assert sorted(len(values(log, "bytes", p)) for p in range(8)) == [0] * 7 + [3]


def test_a_key_that_does_not_fit_is_refused(log):
    log.create("t", 2, SCHEMA)
    assert refusal(log.append, "t", [("a", 1)], key="nope").code == "HR-LOG-006"
    assert refusal(log.append, "t", [("a", 1)], key=["x", "y"]).code == "HR-LOG-006"
    log.create("b", 2)
    assert refusal(log.append, "b", [b"1"], key=["x", "y"]).code == "HR-LOG-006"
    assert log.latest("b") == {0: 0, 1: 0}


def test_a_function_may_choose_the_partition(log):
    log.create("t", 3, "n int")
    log.append("t", [(n,) for n in range(9)], partitioner=lambda t, p: t["n"].to_numpy() % p)
    assert [r["n"] for r in rows(log, "t", 1)] == [1, 4, 7]


@pytest.mark.parametrize("answer", [[0], [0, 3], [0, -1], [0.0, 1.0], ["a", "b"], 0])
def test_a_function_that_chooses_wrongly_is_refused(log, answer):
    log.create("t", 3)
    error = refusal(log.append, "t", [b"a", b"b"], partitioner=lambda t, p: answer)
    assert error.code == "HR-LOG-012"
    assert log.latest("t") == {0: 0, 1: 0, 2: 0}


# Schema


@pytest.mark.parametrize(
    ("records", "column"),
    [
        (pa.table({"area": ["a"]}), "celsius"),
        (pa.table({"area": ["a"], "celsius": ["warm"]}), "celsius"),
        (pa.table({"area": ["a"], "celsius": [1.0], "more": [1]}), "more"),
        (pa.table({"area": [[1]], "celsius": [1.0]}), "area"),
        ([{"area": "a", "celsius": "warm"}], "celsius"),
        ([{"area": "a", "more": 1}], "more"),
        ([{"area": 1, "celsius": 1}], "area"),
        ([("a", 1, 2)], "3"),
    ],
)
def test_records_that_do_not_fit_are_refused_by_column_and_nothing_is_appended(
    log, records, column
):
    log.create("t", 1, SCHEMA)
    error = refusal(log.append, "t", records)
    assert error.code == "HR-LOG-006"
    assert column in error.message
    assert log.latest("t") == {0: 0}


def test_a_number_that_does_not_fit_its_column_is_refused(log):
    log.create("t", 1, "n tinyint, m int not null")
    for bad in (pa.table({"n": [300], "m": [1]}), pa.table({"n": [1.5], "m": [1]}),
                [{"n": 300, "m": 1}], [{"n": 1}], pa.table({"n": [1], "m": [None]})):  # fmt: skip
        assert refusal(log.append, "t", bad).code == "HR-LOG-006"
    log.append("t", pa.table({"n": [127.0], "m": [1]}))
    assert rows(log, "t") == [{"n": 127, "m": 1}]


def test_times_and_decimals_may_be_text_as_json_has_them(log):
    log.create("t", 1, "at timestamp, day date, price decimal(6,2)")
    log.append("t", [
        {"at": "2026-03-01T12:00:00", "day": "2026-03-01", "price": "1.50"},
        {"at": "2026-03-01T13:00:00+01:00"}, {"at": "2026-03-01T12:00:00Z"},
    ])  # fmt: skip
    found = rows(log, "t")
    assert len({r["at"] for r in found}) == 1
    assert (str(found[0]["day"]), str(found[0]["price"])) == ("2026-03-01", "1.50")
    assert refusal(log.append, "t", [{"at": "yesterday"}]).code == "HR-LOG-006"


def test_whole_numbers_for_times_are_milliseconds(log):
    log.create("t", 1, "at timestamp")
    log.append("t", [{"at": 1_772_366_400_000}])
    log.append("t", pa.table({"at": [1_772_366_400_000]}))
    log.append("t", [{"at": "2026-03-01T12:00:00"}])
    assert len({r["at"] for r in rows(log, "t")}) == 1


def test_a_byte_topic_refuses_what_is_not_bytes(log):
    log.create("t")
    for bad in ([1], pa.table({"value": [1]}), pa.table({"val": [b"x"]})):
        assert refusal(log.append, "t", bad).code == "HR-LOG-006"


# Retries


def test_a_retried_append_is_made_once(log, reopen):
    log.create("t", 2)
    first = log.append("t", [b"a", b"b"], producer="job/out", sequence=7)
    assert log.append("t", [b"a", b"b"], producer="job/out", sequence=7) == first
    assert reopen().append("t", [b"a", b"b"], producer="job/out", sequence=7) == first
    assert log.latest("t") == {0: 1, 1: 1}


def test_a_sequence_below_the_last_is_a_retry_too(log):
    log.create("t")
    log.append("t", [b"a"], producer="p", sequence=1)
    log.append("t", [b"b"], producer="p", sequence=5)
    assert log.append("t", [b"a"], producer="p", sequence=1) == {0: (0, 1)}
    assert values(log, "t") == [b"a", b"b"]


def test_producers_do_not_know_of_each_other(log):
    log.create("t")
    for producer in ("p", "q", "p/", "ü" * 300):
        log.append("t", [producer], producer=producer, sequence=0)
    assert len(values(log, "t")) == 4


def test_a_retry_that_goes_to_other_partitions_is_not_made_again(log, reopen):
    log.create("t", 4)
    first = log.append("t", [b"1", b"2"], partitioner=lambda *_: [0, 1], producer="p", sequence=4)
    for again in (log, reopen()):
        for homes in ([2, 3], [1, 0], [1, 2], [3, 3]):
            retried = again.append(
                "t", [b"1", b"2"], partitioner=lambda *_, h=homes: h, producer="p", sequence=4
            )
            assert retried == first
    assert log.latest("t") == {0: 1, 1: 1, 2: 0, 3: 0}


def test_another_append_with_a_used_number_is_refused_as_a_whole(log, reopen):
    log.create("t", 3)
    log.append("t", [b"1"], partition=2, producer="p", sequence=4)
    for again in (log, reopen()):
        refused = refusal(again.append, "t", [b"0", b"1", b"2"], producer="p", sequence=4)
        assert refused.code == "HR-LOG-020"
        assert "1 records" in refused.message
        assert "now appends 3" in refused.message
    assert [values(log, "t", p) for p in range(3)] == [[], [], [b"1"]]


@pytest.mark.parametrize("schema", [None, "n bigint, x double"])
def test_other_records_with_a_used_number_are_refused_however_many_they_are(log, reopen, schema):
    log.create("t", 3, schema=schema)
    odd = float("nan") if schema else 2.0  # NaN is not equal to itself, and no JSON
    made = [{"n": n, "x": odd if n else 1.0} for n in range(5)]
    first = log.append("t", made, producer="p", sequence=4)
    end = log.latest("t")
    for again in (log, reopen()):
        assert again.append("t", made, producer="p", sequence=4) == first
        assert again.append("t", made[::-1], partition=1, producer="p", sequence=4) == first
        other = [*made[:4], {"n": 7, "x": 1.0}]
        assert refusal(again.append, "t", other, producer="p", sequence=4).code == "HR-LOG-020"
    assert log.latest("t") == end


def test_numbers_that_grow_by_one_are_remembered_for_ever_in_any_partitions(log, reopen):
    log.create("t", 4)
    for n in range(1_500):
        log.append("t", [b"%d" % n], partition=n * n // 7 % 4, producer="p", sequence=n)
    end = log.latest("t")
    for again in (log, reopen()):
        for n in range(0, 1_500, 50):
            again.append("t", [b"%d" % n], partition=n % 4, producer="p", sequence=n)
    assert log.latest("t") == end


def test_an_old_retry_is_answered_with_no_records(log):
    log.create("t", 2)
    for n in range(100):
        log.append("t", [b"x"], partition=0, producer="p", sequence=n)
    assert log.append("t", [b"x"], partition=0, producer="p", sequence=3) == {0: (100, 100)}
    assert log.append("t", [b"x"], partition=1, producer="p", sequence=99) == {0: (99, 100)}


@pytest.mark.parametrize(
    "half",
    [
        {"producer": "p"},
        {"sequence": 1},
        {"producer": "", "sequence": 1},
        {"producer": "p", "sequence": -1},
    ],
)
def test_a_producer_needs_a_sequence(log, half):
    log.create("t")
    assert refusal(log.append, "t", [b"x"], **half).code == "HR-LOG-013"


# Time and retention


def test_the_time_of_the_append_is_kept(log, clock):
    log.create("t")
    log.append("t", [b"a", b"b"])
    clock.advance(500)
    log.append("t", [b"c"])
    [(_, table)] = log.read("t", 0, 1, times=True)
    assert table[APPEND_TIME].to_pylist() == [1_000_000, 1_000_500]


def test_a_time_leads_to_the_first_record_not_before_it(log, clock):
    log.create("t")
    for _ in range(5):
        log.append("t", [b"a", b"b"])
        clock.advance(100)
    for ms, offset in [(0, 0), (1_000_000, 0), (1_000_001, 2), (1_000_400, 8), (1_000_401, 10)]:
        assert log.offset_for_time("t", 0, ms) == offset


def test_time_never_goes_back_in_a_partition(log, clock):
    log.create("t")
    log.append("t", [b"a"])
    clock.advance(-10_000)
    log.append("t", [b"b"])
    [(_, table)] = log.read("t", 0, 0, times=True)
    assert table[APPEND_TIME].to_pylist() == [1_000_000, 1_000_000]


def test_records_older_than_the_retention_go(log, clock, reopen):
    log.create("t", retention="1h")
    log.append("t", [b"old"])
    clock.advance(3_600_000)
    assert log.sweep("t") == {"t": 0}
    clock.advance(1)
    assert log.sweep("t") == {"t": 1}

    assert log.earliest("t") == log.latest("t") == {0: 1}
    error = refusal(reopen().read, "t", 0, 0)
    assert error.code == "HR-LOG-007"
    assert "1 (the earliest stored)" in error.hint
    assert log.append("t", [b"new"]) == {0: (1, 2)}
    assert values(log, "t", 0, 1) == [b"new"]


def test_appending_alone_keeps_to_the_retention(log, clock):
    log.create("t", retention="40s")
    for i in range(150):
        log.append("t", [b"%d" % i])
        clock.advance(1_000)
    kept = log.latest("t")[0] - log.earliest("t")[0]
    assert 40 <= kept <= 40 + 2 * 5 + 1


def test_a_size_bounds_what_is_kept(log):
    log.create("t", retention_bytes=1_000_000)
    block = [b"x" * 10_000] * 5
    for _ in range(60):
        log.append("t", block)
    assert 1_000_000 <= log.describe("t").bytes[0] <= 1_300_000
    earliest = log.earliest("t")[0]
    assert 0 < earliest < 300
    assert len(values(log, "t", 0, earliest)) == 300 - earliest


def test_a_retry_is_recognised_after_its_records_are_gone(log, clock, reopen):
    log.create("t", retention="1h")
    ack = log.append("t", [b"x", b"y"], producer="p", sequence=3)
    clock.advance(4_000_000)
    log.sweep("t")
    assert log.earliest("t") == {0: 2}
    assert reopen().append("t", [b"x", b"y"], producer="p", sequence=3) == ack
    assert log.latest("t") == {0: 2}


def test_a_topic_without_retention_keeps_everything(log, clock):
    log.create("t")
    log.append("t", [b"x"])
    clock.advance(10**12)
    assert log.sweep() == {"t": 0}
    assert values(log, "t") == [b"x"]


def test_tables_that_are_kept_hold_no_file_open(log):
    log.create("t")
    kept, before = [], len(os.listdir("/dev/fd"))
    for i in range(20):
        log.append("t", [b"%d" % i])
        kept += log.read("t", 0, i)
    assert len(os.listdir("/dev/fd")) == before
    assert [t["value"][0].as_py() for _, t in kept] == [b"%d" % i for i in range(20)]
