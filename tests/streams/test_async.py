"""Asynchronous calls against a real server: how many at once, in order, again, and given up."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

import headrace as hr
from headrace.ops.calls.caller import AnswerCache, Breaker, BrokenError
from headrace.testing import Harness
from tests.streams.server import get, serving

SCHEMA = "path string, n bigint, at bigint"
OUT = "n bigint, body string"


@pytest.fixture
def server():
    """A server of this test alone: a call that another test gave up may be in flight for long."""
    with serving() as started:
        yield started


def calling(step, timed=True):
    job = hr.Job("calling")
    time = {"time": "at", "delay": "1s"} if timed else {}
    step(job.read("log:x", schema=SCHEMA, name="x", **time)).write("collect:", name="out")
    return job


def fetching(server, **how):
    port = server.port

    async def fetch(row):
        return {"n": row.n, "body": await get(port, row.path)}

    return calling(lambda s: s.map_async(fetch, output=OUT, name="fetch", **how))


def sent(test, paths):
    test.send("x", [(path, n, n) for n, path in enumerate(paths)])
    return test.output()


def test_many_calls_are_in_flight_at_once_and_order_is_kept(server):
    paths = [f"/slow/{40 if i % 2 else 10}/b{i}" for i in range(30)]
    with Harness(fetching(server, concurrency=10)) as test:
        out = sent(test, paths)
    assert [r["n"] for r in out] == list(range(30))
    assert [r["body"] for r in out] == [f"b{i}" for i in range(30)]
    assert server.most == 10


@pytest.mark.constants
def test_without_order_what_is_done_first_comes_first(server):
    with Harness(fetching(server, concurrency=3, ordered=False)) as test:
        out = sent(test, ["/slow/300/a", "/slow/100/b", "/slow/5/c"])
    assert [r["body"] for r in out] == ["c", "b", "a"]


def test_a_plain_function_runs_in_threads():
    running: set[int] = set()
    seen: list[int] = []
    together = threading.Barrier(4, timeout=20)

    def slow(row) -> int:
        running.add(threading.get_ident())
        together.wait()
        seen.append(row.n)
        return row.n * 2

    made = calling(lambda s: s.map_async(slow, concurrency=4))
    with Harness(made) as test:
        out = sent(test, ["x"] * 8)
    assert [r["value"] for r in out] == [2 * n for n in range(8)]
    assert len(running) == 4


def test_a_call_that_fails_is_tried_again(server):
    with Harness(fetching(server, retries=2, backoff="1ms")) as test:
        out = sent(test, ["/fail/2/a", "/slow/0/b"])
        assert test.dead() == []
    assert [r["body"] for r in out] == ["a", "b"]
    assert server.calls["/fail/2/a"] == 3


def test_what_fails_for_good_is_a_dead_letter_with_its_row(server):
    with Harness(fetching(server, retries=1, backoff="1ms")) as test:
        out = sent(test, ["/slow/0/a", "/down/x", "/slow/0/b"])
        (letter,) = test.dead()
        counts = test.progress.counts["x"]
    assert [r["body"] for r in out] == ["a", "b"]
    assert letter["step"] == "fetch"
    assert "ConnectionError: HTTP/1.1 500 Down" in letter["error"]
    assert json.loads(letter["record"]) == {"path": "/down/x", "n": 1, "at": 1}
    assert (letter["input"], letter["offset"]) == ("x", 1)
    assert "in fetch" in letter["traceback"]
    assert server.calls["/down/x"] == 2
    assert (counts["used"], counts["dead"]) == (2, 1)


def test_a_call_that_takes_too_long_is_given_up(server):
    with Harness(fetching(server, timeout="150ms")) as test:
        out = sent(test, ["/slow/5000/a", "/slow/0/b"])
        (letter,) = test.dead()
    assert [r["body"] for r in out] == ["b"]
    assert letter["error"] == "TimeoutError: no answer within 150ms"


@pytest.mark.constants
def test_so_many_rows_a_call():
    sizes = []

    async def many(rows) -> list[int]:
        sizes.append(len(rows))
        await asyncio.sleep(0)
        return [row.n + 1 for row in rows]

    with Harness(calling(lambda s: s.map_async(many, batch_size=4, concurrency=2))) as test:
        out = sent(test, ["x"] * 10)
    assert [r["value"] for r in out] == list(range(1, 11))
    assert sorted(sizes) == [2, 4, 4]


def test_a_function_may_empty_its_list_of_rows():
    def popped(rows):
        answers = []
        while rows:
            answers.append(rows.pop(0).n)
        if not answers:
            raise ValueError("called again with no rows")
        if 5 in answers and 5 not in seen:
            seen.append(5)
            raise ValueError("once more")
        return answers

    seen = []
    calls = {"output": int, "batch_size": 4, "retries": 1, "backoff": "1ms"}
    with Harness(calling(lambda s: s.map_async(popped, **calls))) as test:
        out = sent(test, ["x"] * 10)
        assert test.dead() == []
    assert [r["value"] for r in out] == list(range(10))


def test_a_call_for_many_that_answers_too_few_fails_for_all_of_them():
    async def fewer(rows) -> list[int]:
        return [row.n for row in rows if row.n != 5]

    with Harness(calling(lambda s: s.map_async(fewer, batch_size=4))) as test:
        out = sent(test, ["x"] * 8)
        letters = test.dead()
    assert [r["value"] for r in out] == [0, 1, 2, 3]
    assert {x["error"] for x in letters} == {"ValueError: 4 rows were asked, and 3 answers came"}
    assert len(letters) == 4


@pytest.mark.constants
def test_a_call_for_many_that_answers_with_no_list_says_so():
    with Harness(
        calling(lambda s: s.map_async(lambda rows: None, output=int, batch_size=4))
    ) as test:
        sent(test, ["x"] * 4)
        (error,) = {x["error"] for x in test.dead()}
    assert error == "TypeError: 4 rows were asked for a list of answers, and NoneType came"


@pytest.mark.constants
@pytest.mark.parametrize("given", ["ab", b"ab", {"x": 1, "y": 2}, {1, 2}])
def test_a_call_for_many_must_answer_with_a_list(given):
    """One text, record or set can be gone through too, but is no answer for each row."""
    with Harness(
        calling(lambda s: s.map_async(lambda rows: given, output=int, batch_size=2))
    ) as test:
        assert sent(test, ["x"] * 2) == []
        (error,) = {x["error"] for x in test.dead()}
    kind = type(given).__name__
    assert error == f"TypeError: 2 rows were asked for a list of answers, and {kind} came"


def test_an_answer_that_does_not_fit_is_a_dead_letter():
    async def odd(row):
        return {"n": "text" if row.n == 1 else row.n, "body": "b"}

    with Harness(calling(lambda s: s.map_async(odd, output=OUT, name="odd"))) as test:
        out = sent(test, ["x"] * 3)
        (letter,) = test.dead()
    assert [r["n"] for r in out] == [0, 2]
    assert "column 'n'" in letter["error"]


def test_answers_are_kept_for_a_while(server):
    how = {"cache_ttl": "1h", "cache_on": "path", "concurrency": 4}
    with Harness(fetching(server, **how)) as test:
        first = sent(test, ["/slow/0/a", "/slow/0/a", "/slow/0/b", "/down/c", "/down/c"])
        again = sent(test, ["/slow/0/b", "/slow/0/a", "/down/c"])
        letters = test.dead()
    assert [r["body"] for r in [*first, *again]] == ["a", "a", "b", "b", "a"]
    assert server.calls == {"/slow/0/a": 1, "/slow/0/b": 1, "/down/c": 2}  # a failure is not kept
    assert len(letters) == 3


def test_known_answers_are_bounded_and_grow_old():
    known = AnswerCache(ttl=10, size=2)
    known.put("a", 1, now=0)
    known.put("b", 2, now=0)
    assert known.get("a", now=9) == (True, 1)
    known.put("c", 3, now=9)
    assert len(known) == 2
    assert known.get("b", now=9) == (False, None)  # the one that was not asked for longest
    assert known.get("a", now=10) == (False, None)


def test_calls_begin_at_most_so_often(server):
    with Harness(fetching(server, rate=50, concurrency=20)) as test:
        out = sent(test, [f"/slow/0/{i}" for i in range(8)])
    assert len(out) == 8
    times = sorted(server.times)
    assert times[-1] - times[0] >= 7 / 50 - 0.03


def test_after_failures_in_a_row_calls_are_not_made(server):
    with Harness(fetching(server, breaker=(2, "1h"), concurrency=1)) as test:
        out = sent(test, ["/slow/0/a", *["/down/x"] * 5, "/slow/0/b"])
        letters = test.dead()
    assert [r["body"] for r in out] == ["a"]
    assert server.calls["/down/x"] == 2
    assert [x["error"] for x in letters][2:] == [
        "BrokenError: not called: 2 calls in a row have failed"
    ] * 4


def test_after_a_pause_one_call_is_tried():
    clock = [0.0]
    breaker = Breaker(2, 10, lambda: clock[0])
    for _ in range(2):
        breaker.check()
        breaker.failed()
    with pytest.raises(BrokenError):
        breaker.check()
    clock[0] = 10
    breaker.check()
    with pytest.raises(BrokenError):
        breaker.check()  # while the one is out
    breaker.failed()
    with pytest.raises(BrokenError):
        breaker.check()
    clock[0] = 20
    breaker.check()
    breaker.worked()
    breaker.check()


def test_rows_keep_their_time_for_a_window(server):
    port = server.port

    async def fetch(row) -> str:
        return await get(port, row.path)

    made = calling(
        lambda s: s.map_async(fetch).key_by("value").window(hr.tumbling("10ms")).agg(n=hr.count())
    )
    with Harness(made) as test:
        test.send("x", [("/slow/0/a", n, 4 * n) for n in range(5)])
        test.crash()
        test.end()
        found = [(r["value"], r["n"]) for r in test.output()]
    assert sorted(found) == [("a", 2), ("a", 3)]


def test_partials_objects_and_lambdas_around_can_be_async():
    class Twice:
        async def __call__(self, row):
            return row.n * 2

    async def plus(more, row):
        return row.n + more

    around = lambda row: plus(20, row)  # noqa: E731
    ways = ((Twice(), [0, 2]), (functools.partial(plus, 10), [10, 11]), (around, [20, 21]))
    for fn, expected in ways:
        with Harness(calling(lambda s, fn=fn: s.map_async(fn, output=int))) as test:
            assert [r["value"] for r in sent(test, ["x", "x"])] == expected


# resources


class Counted:
    made = 0

    def __init__(self):
        type(self).made += 1


def test_a_resource_is_made_once_for_all_functions():
    db = hr.resource(Counted)
    Counted.made = 0

    def plain(row) -> int:
        return id(db())

    async def waiting(row) -> int:
        return id(db())

    with Harness(calling(lambda s: s.map(plain))) as test:
        first = {r["value"] for r in sent(test, ["x"] * 5)}
    with Harness(calling(lambda s: s.map_async(waiting))) as test:
        second = {r["value"] for r in sent(test, ["x"] * 5)}
    assert first == second
    assert Counted.made == 1


def test_a_lambda_that_calls_a_resource_runs_as_python_and_makes_it_at_the_first_row():
    made = []
    seven = hr.resource(lambda: made.append(1) or 7)

    def step(s):
        return s.map(lambda row: {"w": row.n + seven()}, schema="w bigint")

    job = calling(step)
    assert "it calls a resource" in job.explain().text
    assert made == []
    with Harness(job) as test:
        assert [r["w"] for r in sent(test, ["x", "y"])] == [7, 8]
    assert made == [1]


def test_an_async_resource_is_awaited_and_made_again_if_it_failed():
    tries = []

    async def connect():
        tries.append(1)
        await asyncio.sleep(0)
        if len(tries) == 1:
            raise ConnectionError("not yet")
        return "open"

    db = hr.resource(connect)

    async def ask(row) -> str:
        return await db()

    with Harness(calling(lambda s: s.map_async(ask, retries=1, backoff="1ms"))) as test:
        assert [r["value"] for r in sent(test, ["x"] * 4)] == ["open"] * 4
    assert len(tries) == 2


def test_an_async_resource_outside_of_a_loop_says_what_to_do():
    async def connect(): ...

    with pytest.raises(hr.RunError) as caught:
        hr.resource(connect)()
    assert caught.value.code == "HR-ASYNC-010"


SCRIPT = """
import sys, time
import headrace as hr
from headrace.ops.calls.resource import watch
async def bye(x): print("async bye", flush=True)
a = hr.resource(lambda: 1, close=lambda x: print("bye", flush=True))
b = hr.resource(lambda: 2, close=bye)
watch(); a(); b()
print("ready", flush=True)
time.sleep(60) if sys.argv[1] == "wait" else None
"""


@pytest.mark.parametrize("end", ["exit", "wait"])
def test_resources_are_closed_when_the_process_ends_or_is_hung_up(end):
    command = [sys.executable, "-c", SCRIPT, end]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        if end == "wait":
            os.kill(child.pid, signal.SIGHUP)
        assert child.stdout.read() == "async bye\nbye\n"


# what is refused


async def fine(row) -> int: ...


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"concurrency": 0}, "HR-ASYNC-001"),
        ({"retries": -1}, "HR-ASYNC-001"),
        ({"timeout": "0s"}, "HR-ASYNC-001"),
        ({"timeout": "soon"}, "HR-TIME-001"),
        ({"rate": 0}, "HR-ASYNC-001"),
        ({"breaker": 5}, "HR-ASYNC-001"),
        ({"breaker": (0, "1s")}, "HR-ASYNC-001"),
        ({"batch_size": 0, "output": int}, "HR-ASYNC-001"),
        ({"cache_size": 0, "cache_ttl": "1m"}, "HR-ASYNC-001"),
        ({"cache_size": 5}, "HR-ASYNC-001"),
        ({"ordered": "no"}, "HR-ASYNC-001"),
        ({"cache_on": "pathh", "cache_ttl": "1s"}, "HR-EXPR-001"),
        ({"cache_on": "path"}, "HR-ASYNC-001"),
        ({"backoff": "1s"}, "HR-ASYNC-001"),
        ({"backoff": "1s", "retries": -1}, "HR-ASYNC-001"),
    ],
)
def test_what_cannot_be_is_refused(how, code):
    with pytest.raises(hr.PlanError) as caught:
        calling(lambda s: s.map_async(fine, **how)).check()
    assert [p.code for p in caught.value.problems] == [code]
    assert all(p.hint and p.site for p in caught.value.problems)


def test_an_output_in_the_place_of_concurrency_is_refused():
    with pytest.raises(hr.PlanError, match=r"HR-ASYNC-001 .*\(concurrency=\) is 'x bigint'"):
        calling(lambda s: s.map_async(fine, "x bigint")).check()


def test_a_function_that_does_not_say_what_it_gives_is_refused():
    async def silent(row): ...

    with pytest.raises(hr.PlanError) as caught:
        calling(lambda s: s.map_async(silent)).check()
    assert caught.value.problems[0].code == "HR-PLAN-011"
    assert "pass output=" in caught.value.problems[0].hint
    with pytest.raises(hr.PlanError) as caught:
        hr.resource("connect")
    assert caught.value.code == "HR-ASYNC-009"


def test_explain_tells_how_calls_are_made():
    how = {"timeout": "2s", "retries": 3, "rate": 10, "cache_ttl": "1m"}
    text = calling(lambda s: s.map_async(fine, name="ask", **how)).explain().text
    assert "16 at a time, within 2s, 3 more tries, at most 10 a second, answers kept 1m" in text
    assert "fine: a Python function" in text
    text = calling(lambda s: s.map_async(fine, 8, "3s")).explain().text
    assert "8 at a time, within 3s" in text
    more = {"batch_size": 5, "breaker": (3, "30s"), "ordered": False}
    text = calling(lambda s: s.map_async(fine, output=int, **more)).explain().text
    assert "5 rows a call, after 3 failures none for 30s, in the order of the answers" in text


def test_the_wait_between_tries_doubles(server):
    with Harness(fetching(server, retries=3, backoff="30ms")) as test:
        before = time.monotonic()
        sent(test, ["/fail/3/a"])
        assert time.monotonic() - before > 0.030 + 0.060 + 0.120
