"""DataFrames as inputs: what they hold, and rows that are stored once, whatever is repeated."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from tests.sources.reading import read_split, refusal
from tests.sources.spark_cases import SCHEMA, frame, written

import headrace as hr
from headrace.errors import HeadraceError, InputError
from headrace.look.in_process import Driver
from headrace.sources import open_source, spark_rows
from headrace.sources.spark_frames import SparkSource, from_spark
from headrace.sources.spark_rows import SparkRows


def rows(start: int, end: int) -> pa.Table:
    made = [{"n": n, "name": str(n)} for n in range(start, end)]
    return pa.Table.from_pylist(made, SCHEMA)


@pytest.fixture
def store(tmp_path):
    store = SparkRows(tmp_path / "job" / "inputs" / "in")
    store.begin()
    return store


def source(tmp_path, streaming=True, **more):
    made = SparkSource(None, SCHEMA, streaming=streaming)
    return open_source(made, folder=str(tmp_path / "job"), name="in", **more)


def numbers(tmp_path):
    return [r["n"] for r in read_split(source(tmp_path), "rows", 0)[0]]


def test_all_types_of_spark_that_arrow_and_ddl_have_are_held():
    made = frame(
        "StructType([StructField('a b', LongType()), StructField('d', DecimalType(10, 2)),"
        "StructField('at', TimestampType()), StructField('day', DateType()),"
        "StructField('s', StructType([StructField('x', ArrayType(IntegerType()))])),"
        "StructField('m', MapType(StringType(), DoubleType())), StructField('b', BinaryType()),"
        "StructField('t', ByteType()), StructField('f', BooleanType())])"
    )

    assert made.schema == pa.schema(
        [
            ("a b", pa.int64()),
            ("d", pa.decimal128(10, 2)),
            ("at", pa.timestamp("us", tz="UTC")),
            ("day", pa.date32()),
            ("s", pa.struct([("x", pa.list_(pa.int32()))])),
            ("m", pa.map_(pa.string(), pa.float64())),
            ("b", pa.binary()),
            ("t", pa.int8()),
            ("f", pa.bool_()),
        ]
    )


@pytest.mark.parametrize(
    "kind",
    ["TimestampNTZType()", "NullType()", "DayTimeIntervalType()", "ArrayType(NullType())"],
)
def test_a_type_that_cannot_be_held_is_refused_by_name(kind):
    refused = refusal(frame, f"StructType([StructField('odd', {kind})])")
    assert refused.code == "HR-SPARK-002" and "'odd'" in refused.message
    assert refused.site is not None


def test_columns_that_sql_would_take_for_one_are_refused():
    with pytest.raises(HeadraceError) as caught:
        frame("StructType([StructField('a', LongType()), StructField('A', LongType())])")
    assert caught.value.code == "HR-SCHEMA-004"


def test_what_is_no_dataframe_of_this_process_is_refused():
    class Connect:
        def toArrow(self):
            return None

    assert refusal(from_spark, [1]).code == "HR-SPARK-001"
    assert "Spark Connect" in refusal(from_spark, Connect()).message


def test_the_dataframe_itself_never_travels():
    made = frame("StructType([StructField('n', LongType())])")
    assert made.frame is not None and pickle.loads(pickle.dumps(made)).frame is None


def test_without_spark_a_run_says_what_it_needs(tmp_path):
    job = hr.Job("none")
    made = frame("StructType([StructField('n', LongType())])")
    job.read(made, name="numbers").write("collect:", name="out")
    with pytest.raises(InputError) as caught:
        Driver(job, tmp_path).drain()
    assert caught.value.code == "HR-SPARK-004"


def test_a_batch_that_is_computed_again_changes_nothing(store, tmp_path):
    assert store.add(0, written(store, [rows(0, 5)]))
    assert not SparkRows(store.folder.parent).add(0, written(store, [rows(5, 9)]))
    assert numbers(tmp_path) == [0, 1, 2, 3, 4]


def test_a_batch_that_is_missing_is_an_error(store):
    store.add(0, written(store, [rows(0, 5)]))
    refused = refusal(store.add, 2, [])
    assert refused.code == "HR-INPUT-009"


def test_an_empty_batch_has_its_number(store, tmp_path):
    for number, part in enumerate([rows(0, 2), rows(0, 0), rows(2, 3)]):
        store.add(number, written(store, [part]))
    assert numbers(tmp_path) == [0, 1, 2] and store.last == 2


def crash_points(store) -> list[str]:
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("headrace.state.sealed.point", seen.append)
        patch.setattr(spark_rows, "point", seen.append)
        store.add(store.last + 1, written(store, [rows(0, 1)]))
    return seen


def test_killed_at_any_point_every_row_is_there_once(tmp_path_factory):
    points = crash_points(begun(tmp_path_factory.mktemp("calm")))
    assert len(points) >= 6
    for point in points:
        tmp = tmp_path_factory.mktemp("job")
        store = begun(tmp)
        store.add(0, written(store, [rows(0, 3)]))

        def crash(name: str, at: str = point) -> None:
            if name == at:
                raise KeyboardInterrupt

        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("headrace.state.sealed.point", crash)
            patch.setattr(spark_rows, "point", crash)
            store.add(1, written(store, [rows(3, 5), rows(5, 6)]))
        again = SparkRows(tmp / "job" / "inputs" / "in")
        again.sweep()
        again.add(1, written(again, [rows(3, 5), rows(5, 6)]))  # as Spark repeats it
        again.add(2, written(again, [rows(6, 7)]))
        assert numbers(tmp) == list(range(7)), point


def begun(tmp) -> SparkRows:
    store = SparkRows(tmp / "job" / "inputs" / "in")
    store.begin()
    return store


def test_what_no_record_names_is_swept(store):
    store.add(0, written(store, [rows(0, 5)]))
    written(store, [rows(5, 9)])  # of a task whose batch was never recorded
    assert len(list(store.rows.iterdir())) == 2
    store.sweep()
    assert len(list(store.rows.iterdir())) == 1


def test_what_is_committed_is_forgotten_by_batches_and_the_last_one_stays(store, tmp_path):
    for number in range(3):
        store.add(number, written(store, [rows(2 * number, 2 * number + 2)]))
    reading = source(tmp_path)
    reading.commit({"rows": 5})

    assert reading.start("rows") == 4 and reading.latest("rows") == 6
    assert len(list(store.rows.iterdir())) == 1
    reading.commit({"rows": 6})
    assert reading.latest("rows") == 6
    assert refusal(reading.check, {"rows": 1}).code == "HR-INPUT-011"
    later = SparkRows(tmp_path / "job" / "inputs" / "in")
    later.add(3, written(later, [rows(6, 7)]))
    assert reading.latest("rows") == 7


@pytest.mark.parametrize("damage", ["short", "gone", "bit"])
def test_a_damaged_file_is_an_error_never_rows(store, tmp_path, damage):
    store.add(0, written(store, [rows(0, 500)]))
    (path,) = store.rows.iterdir()
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    elif damage == "short":
        path.write_bytes(content[:-1])
    else:
        content[100] ^= 1
        path.write_bytes(content)
    assert refusal(numbers, tmp_path).code == "HR-INPUT-009"


def checkpoint(store, planned, done):
    for log, last in (("offsets", planned), ("commits", done)):
        (store.checkpoint / log).mkdir(parents=True, exist_ok=True)
        for number in range(last + 1):
            (store.checkpoint / log / str(number)).touch()


@pytest.mark.parametrize(("planned", "done"), [(1, 1), (1, 0), (2, 1)])
def test_a_checkpoint_that_goes_with_what_is_stored_is_continued(store, tmp_path, planned, done):
    for number in range(2):
        store.add(number, written(store, [rows(number, number + 1)]))
    checkpoint(store, planned, done)
    source(tmp_path).check({"rows": 1})


@pytest.mark.parametrize(("planned", "done"), [(-1, -1), (0, 0), (2, 2)])
def test_a_checkpoint_that_was_lost_or_is_ahead_is_refused(store, tmp_path, planned, done):
    for number in range(2):
        store.add(number, written(store, [rows(number, number + 1)]))
    checkpoint(store, planned, done)
    assert refusal(source(tmp_path).check, {"rows": 1}).code == "HR-SPARK-005"


def test_only_one_process_stores(store):
    other = SparkRows(store.folder.parent)
    assert store.lock() and not other.lock()
    store.unlock()
    assert other.lock()
    other.unlock()


def test_a_look_at_a_streaming_dataframe_is_refused():
    job = hr.Job("look")
    made = frame("StructType([StructField('n', LongType())])", streaming=True)
    stream = job.read(made, name="numbers")
    assert refusal(stream.head, 3).code == "HR-INPUT-018"


def test_a_dataframe_and_a_streaming_one_are_two_inputs(tmp_path):
    batch, stream = source(tmp_path, streaming=False), source(tmp_path)
    assert batch.identity() != stream.identity()
    assert batch.bounded and not stream.bounded
    assert source(tmp_path, until="end").bounded
