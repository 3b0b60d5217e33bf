"""Messages are in words of ours: no library's text, the user's line, and which side of a join."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest

import headrace as hr
from headrace.errors import HeadraceError, InputError, PlanError
from headrace.testing import drive

THEIRS = re.compile(
    r"sqlglot|Invalid expression|Unexpected token|Expecting|tokeniz|, Col: |nonetype"
    r"|pyarrow|Arrow|Value error|kwarg|withingroup|attimezone|jsonextract|strtodate|hexstring",
    re.IGNORECASE,
)
TEXTS = [
    "v > ", "(v > 1", "k = 'a", "v > 1 && k = 'a'", "k ~ 'a'", "try_cast(k as foo) = 1",
    "v > 1 group by k", "v > 1 qualify 2", "case when v > 1 then 'a'", "upper(x => k) = 'A'",
    "percentile_cont(0.5) within group (order by v) > 1", "first(v) ignore nulls > 1", "v > :x",
    "v > ?", "v > {x}", "@v > 1", "k at time zone 'UTC' > 1", "k = x'ff'", "(v, k) in ((1, 'a'))",
    "v > 1 xor v < 3", "k similar to 'a'", "v > +-+", "k -> 'a' = 1", "k ->> 'a' = 1", "k:a.b = 1",
    "v |> 1", "v = $$a$$", "cast(k as date format 'yyyy') = 1", "v in (values (1))",
    "exists (select 1)", "sum(v) over () > 1", "v\n> 1 &&\n k",
]  # fmt: skip


def stream(job: hr.Job, name: str = "left") -> Any:
    return job.read(hr.rows([{"k": "a", "v": 1, "t": 1}]), time="t", delay="1s", name=name)


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_cannot_be_read_is_refused_in_our_words(text: str) -> None:
    job = hr.Job("j")
    stream(job).where(text).write("collect:")
    with pytest.raises(PlanError) as caught:
        job.check()
    assert caught.value.code == "HR-EXPR-004"
    why = caught.value.message.replace(repr(text), "")
    assert not THEIRS.search(why), why
    assert "test_words.py" in str(caught.value)


def test_the_character_is_named() -> None:
    job = hr.Job("j")
    stream(job).where("v > 1 && k = 'a'").write("collect:")
    with pytest.raises(PlanError, match="unexpected '&&', character 8"):
        job.check()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"a": 1, "b": 1}, {"a": 1.5, "b": "x"}], "row 1, column 'b': 'x' (str) is not like 1"),
        ([1, 2], "row 0 is 1 (int), not a dict"),
        ([], "there are no rows"),
    ],
)
def test_rows_that_do_not_fit_name_the_row_and_the_line(rows: list[Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        hr.rows(rows)
    assert says in str(caught.value) and "test_words.py" in str(caught.value)
    assert not THEIRS.search(str(caught.value))


@pytest.mark.parametrize(
    ("on", "code", "says"),
    [
        ({"zz": "k"}, "HR-EXPR-001", "'zz' in the left side of the join, 'left'"),
        ({"k": "zz"}, "HR-EXPR-001", "'zz' in the right side of the join, 'right'"),
        ({"k": "v"}, "HR-JOIN-003", "left 'k' is string and right 'v' is bigint"),
    ],
)
def test_a_join_says_which_side(on: Any, code: str, says: str) -> None:
    job = hr.Job("j")
    stream(job).join(stream(job, "right"), on=on, within="1m").write("collect:")
    with pytest.raises(PlanError, match=says) as caught:
        job.check()
    assert caught.value.code == code


class WithoutContext(hr.KeyedProcess):
    output = "k string"

    def on_row(self, row):  # type: ignore[no-untyped-def]
        return {"k": row.k}


class TimerWithoutTime(WithoutContext):
    def on_row(self, row, ctx):  # type: ignore[no-untyped-def]
        ctx.timer(row.t)

    def on_timer(self, ctx):  # type: ignore[no-untyped-def]
        return None


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (WithoutContext, "WithoutContext.on_row is called with (row, ctx)"),
        (TimerWithoutTime, "TimerWithoutTime.on_timer is called with (time, ctx)"),
    ],
)
def test_a_method_that_does_not_take_its_arguments_is_refused_when_built(
    kind: type[hr.KeyedProcess], says: str
) -> None:
    job = hr.Job("j")
    stream(job).key_by("k").process(kind(), unbounded=True).write("collect:")
    with pytest.raises(PlanError) as caught:
        job.check()
    assert caught.value.code == "HR-PLAN-028" and says in caught.value.message


@pytest.mark.parametrize(
    "build",
    [
        lambda job, at: stream(job).write(f"files:{at}/out", merg=True),
        lambda job, at: stream(job).write(f"files:{at}/out", format="exel"),
        lambda job, at: job.read(f"files:{at}/no.csv", schema="a int").write("collect:"),
        lambda job, at: job.read(f"files:{at}", schema="a int", format="csv", sep=";").write(
            "collect:"
        ),
    ],
)
def test_an_input_or_output_that_cannot_be_opened_names_the_line(
    build: Any, tmp_path: Path
) -> None:
    job = hr.Job("j")
    build(job, tmp_path)
    with pytest.raises(HeadraceError) as caught:
        drive(job, tmp_path / "job")
    assert "test_words.py" in str(caught.value)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda s: s["k"], 'A column is written as text, hr.col("k")'),
        (lambda s: s.k, 'A column is written as text, hr.col("k")'),
        (lambda s: s[0], "show() prints the first ones, head(n) returns them"),
        (list, "show() prints the first ones, head(n) returns them"),
    ],
)
def test_columns_and_rows_are_no_parts_of_a_stream(write: Any, says: str) -> None:
    with pytest.raises(PlanError, match=r"HR-PLAN-060.*test_words\.py") as caught:
        write(stream(hr.Job("j")))
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (lambda: hr.col("v").sum(), 'hr.sum("x")'), (lambda: hr.col("v").avg(), 'hr.mean("x")'),
        (lambda: hr.col("k").str, "hr.upper(x)"),
    ],
)  # fmt: skip
def test_what_an_expression_has_not_is_answered(write: Any, says: str) -> None:
    with pytest.raises(AttributeError) as caught:
        write()
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("files:out", {"format": "xls"}, "HR-OUTPUT-008"), ("files:", {}, "HR-OUTPUT-001"),
        ("files:out", {"mode": "overwrite"}, "HR-OUTPUT-008"), ("log:a b", {}, "HR-OUTPUT-001"),
        ("console:", {"rowz": 3}, "HR-OUTPUT-008"),
        ("collect:", {"mode": "append"}, "HR-OUTPUT-008"),
        ("log:topic", {"format": "json"}, "HR-OUTPUT-008"),
        ("log:topic", {"partitions": "a"}, "HR-OUTPUT-008"),
        ("log:topic", {"partitions": 0}, "HR-OUTPUT-008"),
        ("console:", {"rows": "x"}, "HR-OUTPUT-008"), ("console:", {"rows": 0}, "HR-OUTPUT-008"),
        ("console:", {"stream": "zz"}, "HR-OUTPUT-008"),
        ("files:out", {"target_file_mb": math.nan}, "HR-OUTPUT-008"),
        ("files:out", {"merge": "x"}, "HR-OUTPUT-008"),
    ],
)  # fmt: skip
def test_an_output_with_wrong_options_is_refused_when_built(
    uri: str, options: dict[str, Any], code: str
) -> None:
    job = hr.Job("j")
    stream(job).write(uri, **options)
    with pytest.raises(PlanError, match=rf"{code}.*test_words\.py"):
        job.check()


def test_aggregates_as_text_need_a_key_or_a_window_too() -> None:
    job = hr.Job("j")
    stream(job).agg("sum(v) as s").write("collect:")
    with pytest.raises(PlanError, match="HR-PROCESS-001"):
        job.check()


def test_columns_are_added_by_keyword_by_text_and_by_name() -> None:
    rows = stream(hr.Job("j"))
    found = rows.with_columns({"a b": "v + 1"}, "v + 2 as y", hr.col("v").alias("z"), w="v * 9")
    assert found.head().to_pylist() == [
        {"k": "a", "v": 1, "t": 1, "a b": 2, "y": 3, "z": 1, "w": 9}
    ]
    for twice in (rows.with_columns({"y": "v"}, y="v"), rows.with_columns("v as y", "v + 1 as y")):
        with pytest.raises(PlanError, match="HR-PLAN-015"):
            twice.head()
    for name in (5, None, ""):
        with pytest.raises(PlanError, match=r"HR-PLAN-015 .* cannot name a column"):
            rows.with_columns({name: "v"}).head()
    with pytest.raises(PlanError, match='"v \\+ 1 as new_name"'):
        rows.with_columns("v + 1").head()


def test_texts_in_arrays_and_structs_are_columns() -> None:
    rows = stream(hr.Job("j"))
    found = rows.select(
        a=hr.array("k", hr.lit("x")), s=hr.struct("k", n="v", one=1, text=hr.lit("x"), no=None)
    )
    assert found.head().to_pylist() == [
        {"a": ["a", "x"], "s": {"k": "a", "n": 1, "one": 1, "text": "x", "no": None}}
    ]


def test_fields_of_a_struct_have_names_of_their_own() -> None:
    rows, col = stream(hr.Job("j")), hr.col
    found = rows.select(s=hr.struct(col("k"), (col("v") + 1).alias("w")), a=hr.array(["k", "k"]))
    assert found.head().to_pylist() == [{"s": {"k": "a", "w": 2}, "a": ["a", "a"]}]
    for wrong in (["k"], {"q": "k"}, 3, col("v") + 1):
        with pytest.raises(PlanError, match="HR-EXPR-003 a field of a struct has no name"):
            hr.struct(wrong)
    for args, fields in ((("k", "k"), {}), (("k",), {"k": "v"}), (("k",), {"K": "v"})):
        with pytest.raises(PlanError, match="HR-EXPR-003 a struct has two fields named"):
            hr.struct(*args, **fields)
    with pytest.raises(PlanError, match=r"HR-EXPR-003 .* two fields named 'k'"):
        rows.select("named_struct('k', k, 'k', v) as s").head()
