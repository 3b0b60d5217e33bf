"""When a job is said to stand still, look by look; no clock runs here."""

from __future__ import annotations

from pathlib import Path

from headrace.inspect.stall import RunSample, StallDetector, TaskCounts, note, reason

AFTER = 60_000


def _news(*looks: RunSample) -> list[str | None]:
    stand = StallDetector(AFTER)
    return [stand.see(look) for look in looks]


def test_an_idle_job_whose_planner_answers_does_not_stand_still() -> None:
    looks = [RunSample(t, 7, None, planned=t) for t in range(0, 600_000, 10_000)]
    assert _news(*looks) == [None] * len(looks)


def test_a_batch_without_any_progress_is_said_with_what_is_known() -> None:
    tasks = TaskCounts(done=3, running=1, waiting=2, executors=1)
    looks = [
        RunSample(t, 7, 1_000, planned=0, tasks=tasks) for t in (2_000, 30_000, 62_000, 63_000)
    ]
    *before, said, after = _news(*looks)
    assert before == [None, None] and after is None  # once
    assert said == (
        "stalled: batch 8 has been under way for 61.0s, without any progress for 60.0s; "
        "3 tasks done, 1 running, 2 waiting on 1 executor"
    )


def test_it_is_said_again_after_twice_the_time() -> None:
    looks = [RunSample(t * 1_000, 7, 0, planned=0) for t in range(0, 601)]
    said = [look.now for look, news in zip(looks, _news(*looks), strict=True) if news]
    assert said == [60_000, 120_000, 240_000, 480_000]


def test_a_long_batch_whose_tasks_get_done_goes_on() -> None:
    looks = [
        RunSample(t, 7, 0, planned=0, tasks=TaskCounts(t // 30_000, 1, 9, 1))
        for t in range(0, 600_000, 10_000)
    ]
    assert _news(*looks) == [None] * len(looks)


def test_that_it_goes_on_is_said_and_only_then() -> None:
    stand = StallDetector(AFTER)
    for now in (0, AFTER):
        stand.see(RunSample(now, 7, 0, planned=0))
    assert stand.text is not None
    assert (
        stand.see(RunSample(AFTER + 1, 8, None, planned=AFTER)) == "goes on" and stand.text is None
    )
    assert stand.see(RunSample(AFTER + 2, 9, None, planned=AFTER)) is None


def test_spark_that_does_not_answer_and_executors_that_are_gone_are_said() -> None:
    assert "Spark does not answer" in str(
        _news(RunSample(0, 0, 0, 0), RunSample(AFTER, 0, 0, 0))[1]
    )
    gone = TaskCounts(0, 0, 4, executors=0)
    assert "no executor is left" in str(
        _news(RunSample(0, 0, 0, 0), RunSample(AFTER, 0, 0, 0, gone))[1]
    )


def test_inputs_that_do_not_answer_are_said() -> None:
    found = _news(RunSample(0, 3, None, planned=0), RunSample(AFTER, 3, None, planned=0))
    assert found == [None, "stalled: its inputs have not answered for 60.0s"]


def test_why_reads_what_a_run_left_in_the_folder_until_it_takes_it_back(tmp_path: Path) -> None:
    assert reason("j", tmp_path) is None
    note(tmp_path, "stalled: so it does", 0)
    found = reason("j", tmp_path)
    assert found is not None and found.kind == "standstill"
    assert found.text == "the job is stalled: so it does (at 1970-01-01 00:00:00 UTC)"
    (tmp_path / "standstill.json").write_text('{"at": 1')  # half of it
    assert reason("j", tmp_path) is None
    note(tmp_path, None, 0)
    assert [*tmp_path.iterdir()] == []
