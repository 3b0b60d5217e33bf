"""Webhooks: retried, in order, under keys that stay; refused for good without losing a row."""

from __future__ import annotations

import json

import pytest
from tests.sinks.webhook_cases import case, receiver
from tests.sinks.writing import ALONE, expected, made, refusal, stage, table

import headrace as hr
from headrace.sinks import open_sink, webhook
from headrace.sinks.contract import AT_LEAST_ONCE
from headrace.testing import drive
from headrace.testing.output_drivers import EPOCHS, SCHEMA, CrashingDriver


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(webhook, "SHORTEST_PAUSE", 0.01)
    yield
    receiver().answers.clear()
    receiver().retry_after = ""


def test_a_receiver_that_honours_the_key_has_every_row_once_whatever_crashes(tmp_path_factory):
    calm = CrashingDriver(case(tmp_path_factory.mktemp("calm"), max_rows=2), None)
    calm.run()
    points = [i for i, name in enumerate(calm.passed, 1) if name.startswith("sink.")]
    assert "sink.webhook.posted" in calm.passed
    for point in points[::2]:
        output = case(tmp_path_factory.mktemp("crash"), max_rows=2)
        CrashingDriver(output, point).run()
        assert output.rows() == expected(EPOCHS)


@pytest.mark.parametrize("array", [True, False])
def test_an_epoch_is_posted_in_parts_in_order_under_keys_of_their_own(tmp_path, array):
    output = case(tmp_path, max_rows=4, array=array)
    sink = made(output.open())
    assert sink.guarantee == AT_LEAST_ONCE and sink.held() is None
    sink.publish(7, stage(sink, 7), ALONE)

    path = str(tmp_path)
    keys = receiver().keys[path]
    assert [k.rpartition("/")[0] for k in keys] == [keys[0].rpartition("/")[0]] * 2
    assert [k.split("/")[-2:] for k in keys] == [["7", "0"], ["7", "1"]]
    assert [r["n"] for r in receiver().rows[path]] == [700, 701, 702, 710, 711, 712]
    assert "stays there" in sink.go_back(None, ALONE)  # type: ignore[arg-type]


def test_requests_are_cut_by_size_and_a_row_is_never_cut(tmp_path, monkeypatch):
    output = case(tmp_path)
    sink = made(output.open())
    sink._bytes = 90  # type: ignore[attr-defined]
    before = len(receiver().attempts)
    sink.publish(0, sink.stage(table(0, *range(10)), 0, "a"), ALONE)

    sizes = [len(body) for _, _, body in receiver().attempts[before:]]
    assert len(sizes) == 5 and max(sizes) <= 90
    sink._bytes = 1  # type: ignore[attr-defined]
    sink.publish(1, sink.stage(table(1, 1, 2), 1, "a"), ALONE)
    assert len(output.rows()) == 12


def test_what_may_pass_is_tried_again_in_order_under_the_same_key(tmp_path):
    output = case(tmp_path, max_rows=3)
    sink = made(output.open())
    receiver().answers[:] = [503, 0, 429, 500, 200, 0, 502]
    before = len(receiver().attempts)

    sink.publish(0, stage(sink, 0), ALONE)

    assert output.rows() == expected(1)
    tried = [h["Idempotency-Key"][-1] for _, h, _ in receiver().attempts[before:]]
    assert tried == sorted(tried) and len(tried) == 8


def test_what_is_refused_for_good_stops_the_job_and_is_posted_by_the_next_start(tmp_path):
    def job() -> hr.Job:
        made = hr.Job("hook")
        rows = made.read(hr.rows([{"n": i} for i in range(6)]))
        rows.write(f"webhook:{receiver().url}{tmp_path}/refused", name="hook")
        return made

    receiver().answers[:] = [200, 422]
    with pytest.raises(hr.OutputError, match=r"epoch 2 of output 'hook': 422 .*said") as caught:
        drive(job(), tmp_path / "job", max_batch=2)
    assert caught.value.code == "HR-HTTP-005"

    drive(job(), tmp_path / "job")

    assert receiver().rows[f"{tmp_path}/refused"] == [{"n": i} for i in range(6)]


def test_a_receiver_that_is_gone_is_waited_for_and_then_it_is_an_error(tmp_path):
    options = {"patience": "300ms", "timeout": "200ms"}
    sink = open_sink("webhook:http://127.0.0.1:9/x", SCHEMA, options, str(tmp_path), "o")
    error = refusal(sink.publish, 0, stage(made(sink), 0), ALONE)
    assert error.code == "HR-HTTP-006" and "refused" in error.message

    receiver().retry_after = "3"
    receiver().answers[:] = [503, 503]
    sink = made(case(tmp_path / "b", patience="1s").open())
    assert refusal(sink.publish, 0, stage(sink, 0), ALONE).code == "HR-HTTP-006"


def test_secrets_come_from_the_environment_and_are_nowhere_else(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOK_TOKEN", "geheim")
    output = case(tmp_path, token_env="HOOK_TOKEN", headers_env={"X-Key": "HOOK_TOKEN"})
    sink = made(output.open())
    sink.publish(0, stage(sink, 0), ALONE)
    headers = receiver().attempts[-1][1]
    assert (headers["Authorization"], headers["X-Key"]) == ("Bearer geheim", "geheim")
    assert "geheim" not in json.dumps(sink.describe()) + str(vars(sink))
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or b"geheim" not in path.read_bytes()
    monkeypatch.delenv("HOOK_TOKEN")
    assert refusal(output.open().check).code == "HR-HTTP-003"


@pytest.mark.parametrize(
    ("uri", "options", "code"),
    [
        ("webhook:localhost/x", {}, "HR-OUTPUT-001"),
        ("webhook:https://me@localhost/x", {}, "HR-OUTPUT-001"),
        ("webhook:https://localhost/x", {"headers_env": ["X"]}, "HR-OUTPUT-008"),
        ("webhook:https://localhost/x", {"max_rows": 0}, "HR-OUTPUT-008"),
        ("webhook:https://localhost/x", {"array": 1}, "HR-OUTPUT-008"),
        ("webhook:https://localhost/x", {"headers": {}}, "HR-OUTPUT-008"),
        ("webhook:https://localhost/x", {"timeout": "0s"}, "HR-OUTPUT-008"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path, uri, options, code):
    assert refusal(open_sink, uri, SCHEMA, options, str(tmp_path), "o").code == code
