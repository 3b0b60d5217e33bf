import contextlib
import copy
import pickle
import re
from dataclasses import dataclass

import pyarrow.compute
import pytest
import typer.main

from headrace import errors
from headrace.errors import FencedError, HeadraceError, PlanError, Site, call_site, is_users

KINDS = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, HeadraceError)]


def test_a_message_has_code_fact_place_and_hint():
    error = PlanError(
        "HR-WINDOW-003",
        "window has slide 90s",
        "Choose less.",
        site=Site("/home/me/fire_alarm.py", 41),
    )
    assert str(error) == "HR-WINDOW-003 window has slide 90s  (fire_alarm.py:41)\n  Choose less."


def test_every_line_of_a_hint_is_indented():
    assert (
        str(HeadraceError("HR-000", "no java", "Do a.\nOr b."))
        == "HR-000 no java\n  Do a.\n  Or b."
    )


def test_the_tree_drawn_at_the_top_is_the_tree_there_is():
    drawn = re.findall(r"(\w+Error)\b", (errors.__doc__ or "").partition("A message")[0])
    assert sorted(drawn) == sorted(kind.__name__ for kind in KINDS)
    assert all(kind.__doc__ for kind in KINDS)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy])
def test_an_error_is_the_same_on_the_other_side_of_a_process(kind, through):
    error = kind("HR-X-001", "it broke", "Mend it.", site=Site("a.py", 3))
    there = through(error)
    assert type(there) is kind
    assert str(there) == str(error)
    assert (there.code, there.hint, there.site) == (error.code, error.hint, error.site)


def test_one_problem_is_reported_as_itself_here_and_in_another_process():
    only = PlanError("HR-EXPR-001", "unknown column")
    assert PlanError.of([only]) is only
    there = pickle.loads(pickle.dumps(only))
    assert there.problems == (there,)


def test_all_problems_are_reported_at_once_even_if_they_came_in_bundles():
    a, b, c = (PlanError(f"HR-PLAN-00{i}", name) for i, name in enumerate("abc"))
    error = PlanError.of([PlanError.of([a, b]), c])
    assert error.problems == (a, b, c)
    assert str(error) == "the program has 3 problems:\nHR-PLAN-000 a\nHR-PLAN-001 b\nHR-PLAN-002 c"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_fenced_driver_can_be_caught_as_trouble_with_the_state():
    with pytest.raises(errors.StateError):
        raise FencedError("HR-STATE-007", "another driver has taken the folder")


def run_as(source, module, file):
    """Run `source` as if it were `module` in `file`; gives its variable `site`."""
    scope = {"__name__": module, "call_site": call_site, "dataclass": dataclass}
    exec(compile(source, file, "exec"), scope)
    return scope


INSIDE = "headrace.ops.window.aligned"
INSIDE_FILE = errors.__file__.replace("errors.py", "ops/window/aligned.py")


def test_the_place_is_the_nearest_caller_outside_the_package():
    inside = run_as("def window():\n    return call_site()", INSIDE, INSIDE_FILE)
    user = compile("\n\nsite = window()", "/home/me/job.py", "exec")
    scope = {"__name__": "__main__", "window": inside["window"]}
    exec(user, scope)
    assert scope["site"] == Site("/home/me/job.py", 3)


def test_the_init_that_a_dataclass_writes_is_not_taken_for_the_user():
    import sys  # a dataclass looks its module up there

    code = (
        "@dataclass(frozen=True)\nclass Spec:\n    size: int\n"
        "    def __post_init__(self):\n        object.__setattr__(self, 'site', call_site())\n"
    )
    sys.modules[INSIDE + "_test"] = type(sys)(INSIDE + "_test")
    try:
        spec = run_as(code, INSIDE + "_test", INSIDE_FILE)["Spec"](5)
    finally:
        del sys.modules[INSIDE + "_test"]
    assert spec.site.file == __file__


def test_a_user_in_a_folder_that_only_begins_like_the_package_is_a_user():
    beside = INSIDE_FILE.replace("/ops/window/aligned.py", "_jobs/job.py")
    assert run_as("site = call_site()", "job", beside)["site"] == Site(beside, 1)


@pytest.mark.parametrize(
    ("file", "users"),
    [
        (__file__, True),
        ("<stdin>", True),
        (pytest.__file__, True),  # installed, but it may be the user's
        (contextlib.__file__, False),
        (errors.__file__, False),
        (pyarrow.compute.__file__, False),
        (typer.main.__file__, False),  # between the command line and us
        ("pyarrow/error.pxi", False),
        ("<frozen importlib._bootstrap>", False),
    ],
)
def test_a_place_is_the_users_or_it_is_none(file, users):
    assert is_users(file) == users


def test_the_place_of_a_call_is_not_in_the_standard_library():
    @contextlib.contextmanager
    def around():
        yield call_site()

    with around() as site:
        assert site is not None and site.file == __file__
