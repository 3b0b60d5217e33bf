import dataclasses
import os
import string
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import integers, none, one_of, text

from headrace.errors import RunError
from headrace.settings import FILE, Settings


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    """An empty working folder, and no settings in the environment."""
    monkeypatch.chdir(tmp_path)
    for variable in [v for v in os.environ if v.startswith("HEADRACE_")]:
        monkeypatch.delenv(variable)


def refusal(**overrides):
    with pytest.raises(RunError) as caught:
        Settings.load(**overrides)
    return caught.value


def test_the_defaults_are_for_a_laptop_and_this_folder():
    assert dataclasses.asdict(Settings.load()) == {
        "log": str(Path.cwd() / ".headrace" / "log"),
        "jobs": str(Path.cwd() / ".headrace" / "jobs"),
        "server": str(Path.cwd() / ".headrace" / "server"),
        "master": "local[*]",
        "target_batch": 1_000,
        "max_batch": None,
        "slots": None,
        "parallelism": None,
        "keep_epochs": 20,
        "secret_file": None,
        "stall_after": 60_000,
    }


def test_loading_settings_creates_nothing():
    Settings.load()
    assert list(Path.cwd().iterdir()) == []


COUNT = one_of(none(), integers(1, 10**6))


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(called=COUNT, environment=COUNT, file=COUNT)
def test_the_call_wins_over_the_environment_over_the_file_over_the_default(
    called, environment, file
):
    with pytest.MonkeyPatch.context() as patch:
        if environment is not None:
            patch.setenv("HEADRACE_KEEP_EPOCHS", str(environment))
        Path(FILE).write_text("" if file is None else f"keep_epochs = {file}\n")

        first = next(v for v in (called, environment, file, 20) if v is not None)
        assert Settings.load(keep_epochs=called).keep_epochs == first


def test_every_setting_can_come_from_every_side(monkeypatch):
    given = Settings(
        log="/l", jobs="/j", master="spark://m:7077", target_batch=250, max_batch=1,
        slots=2, parallelism=3, keep_epochs=4, secret_file="/s", stall_after=90_000,
    )  # fmt: skip
    values = dataclasses.asdict(given) | {"target_batch": "250ms", "stall_after": "90s"}
    assert Settings.load(**values) == given

    quoted = {n: f'"{v}"' if isinstance(v, str) else v for n, v in values.items()}
    Path(FILE).write_text("".join(f"{n} = {v}\n" for n, v in quoted.items()))
    assert Settings.load() == given

    Path(FILE).unlink()
    for name, value in values.items():
        monkeypatch.setenv(f"HEADRACE_{name.upper()}", str(value))
    assert Settings.load() == given


def test_folders_become_absolute_from_wherever_they_come(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("HEADRACE_LOG", "~/log")
    loaded = Settings.load(jobs=Path("jobs"))
    assert (loaded.log, loaded.jobs) == ("/home/me/log", str(Path.cwd() / "jobs"))


def test_an_empty_variable_and_an_override_of_none_are_not_given(monkeypatch):
    monkeypatch.setenv("HEADRACE_MASTER", "")
    assert Settings.load(slots=None, master=None) == Settings()


@pytest.mark.parametrize("said", ["2s", "2000 ms", 2, 2.0])
def test_a_target_is_said_as_a_duration_and_kept_in_milliseconds(said):
    loaded = Settings.load(target_batch=said)
    assert loaded.target_batch == dataclasses.replace(loaded, slots=8).target_batch == 2_000


def test_a_setting_made_directly_is_checked_too():
    with pytest.raises(RunError) as caught:
        Settings(slots=0)
    assert caught.value.code == "HR-SETTINGS-002"


def test_settings_do_not_change():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().slots = 5


@pytest.mark.parametrize("side", ["call", "file", "environment"])
def test_a_slip_of_the_pen_is_refused_with_what_was_meant(side, monkeypatch):
    overrides = {}
    if side == "call":
        overrides = {"paralelism": 4}
    elif side == "file":
        Path(FILE).write_text("paralelism = 4")
    else:
        monkeypatch.setenv("HEADRACE_PARALELISM", "4")
    error = refusal(**overrides)
    assert error.code == "HR-SETTINGS-001"
    assert "'paralelism'" in error.message
    assert "Did you mean 'parallelism'?" in error.hint


def test_what_is_like_no_setting_is_refused_with_the_list_of_all():
    error = refusal(colour="blue")
    assert error.code == "HR-SETTINGS-001"
    assert error.hint.startswith("The settings are log, jobs, server, master")


def test_variables_of_others_in_the_environment_are_left_alone(monkeypatch):
    monkeypatch.setenv("HEADRACE_CRASH", "manifest:2")
    monkeypatch.setenv("HEADRACE_BENCH_ROWS", "10")
    assert Settings.load() == Settings()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slots", 0),
        ("slots", -3),
        ("slots", 2.5),
        ("slots", True),
        ("slots", "many"),
        ("keep_epochs", "0"),
        ("target_batch", "soon"),
        ("target_batch", "0s"),
        ("target_batch", "0.1ms"),
        ("target_batch", [1]),
        ("master", "  "),
        ("master", 5),
        ("master", "host:7077"),
        ("log", 5),
        ("log", ""),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_the_setting_s_name(name, value):
    error = refusal(**{name: value})
    assert error.code == "HR-SETTINGS-002"
    assert error.message == f"the setting {name} is {value!r}"


def test_a_wrong_value_says_where_it_came_from(monkeypatch):
    Path(FILE).write_text('slots = "few"')
    assert "slots in headrace.toml" in refusal().message
    monkeypatch.setenv("HEADRACE_SLOTS", "many")
    Path(FILE).unlink()
    assert refusal().message == "the setting HEADRACE_SLOTS is 'many'"


@pytest.mark.parametrize("content", [b"slots = ", b"slots", b"\xff\xfe", b"slots = 1\nslots = 2"])
def test_a_file_that_cannot_be_read_is_refused(content):
    Path(FILE).write_bytes(content)
    assert refusal().code == "HR-SETTINGS-003"


def test_a_folder_in_the_place_of_the_file_is_refused():
    Path(FILE).mkdir()
    assert refusal().code == "HR-SETTINGS-003"


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=text(string.printable, max_size=40))
def test_any_file_is_either_read_or_refused_by_name(content):
    Path(FILE).write_text(content, newline="")
    try:
        Settings.load()
    except RunError as error:
        assert error.code.startswith("HR-SETTINGS-")


def test_the_variables_of_a_client_of_a_server_are_no_misspelt_settings(monkeypatch):
    monkeypatch.setenv("HEADRACE_SERVER_URL", "http://127.0.0.1:8780")
    monkeypatch.setenv("HEADRACE_SERVER_TOKEN", "secret")
    assert Settings.load().server == str(Path.cwd() / ".headrace" / "server")
    monkeypatch.setenv("HEADRACE_SERVERS", "here")
    with pytest.raises(RunError):
        Settings.load()
