"""Which programs a server takes, and what it copies of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ServerError
from headrace.server import imported
from headrace.server.programs import Programs, Snapshot, opened


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "programs").mkdir()
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "other.py").write_text("x = 1\n")
    (tmp_path / "programs" / "job.py").write_text("import sizes\n")
    (tmp_path / "programs" / "sizes.py").write_text("")
    return tmp_path


def taken(place: Path, program: str, *allowed: str) -> Snapshot:
    programs = Programs(allowed or ("programs",), place)
    return programs.snapshot(program, place / "version")


def refused(place: Path, program: str, code: str, *allowed: str) -> ServerError:
    with pytest.raises(ServerError) as caught:
        taken(place, program, *allowed)
    assert caught.value.code == code, caught.value
    return caught.value


def files(snapshot: Snapshot) -> list[str]:
    found = snapshot.folder.rglob("*")
    return sorted(p.relative_to(snapshot.folder).as_posix() for p in found if p.is_file())


def test_a_program_is_copied_with_what_it_imports(place: Path) -> None:
    write(place, "job.py", "import sizes, json, numpy\nfrom shapes.round import circle\n")
    write(place, "sizes.py", "def f():\n    import units\n")
    write(place, "units.py", "")
    write(place, "unused.py", "")
    write(place, "json.py", "")  # Python's own comes first
    write(place, "shapes/__init__.py", "")
    write(place, "shapes/round.py", "from . import flat\nimport colours\n")
    write(place, "shapes/flat.py", "")
    write(place, "shapes/table.sql", "select 1")
    write(place, "shapes/.hidden", "")
    write(place, "shapes/__pycache__/flat.pyc", "")
    write(place, "colours.py", "import job\n")
    snapshot = taken(place, "programs/job.py")
    assert files(snapshot) == [
        "colours.py", "job.py", "shapes/__init__.py", "shapes/flat.py", "shapes/round.py",
        "shapes/table.sql", "sizes.py", "units.py",
    ]  # fmt: skip
    assert snapshot.file.name == "job.py" and snapshot.program == str(place / "programs/job.py")
    assert opened(snapshot.program, place / "version").file == snapshot.file


def write(place: Path, name: str, text: str) -> None:
    path = place / "programs" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_folder_is_copied_whole(place: Path) -> None:
    write(place, "shop/job.py", "")
    write(place, "shop/data/prices.csv", "a,1")
    write(place, "shop/.git/config", "")
    snapshot = taken(place, "programs/shop")
    assert files(snapshot) == ["data/prices.csv", "job.py"]
    assert snapshot.file.name == "job.py"
    write(place, "shop/__main__.py", "")
    assert taken(place, "programs/shop").file.name == "__main__.py"
    assert opened(str(place / "programs/shop"), place / "version").file.name == "__main__.py"
    write(place, "empty/readme.txt", "")
    assert "job.py" in str(refused(place, "programs/empty", "HR-SERVER-015").hint)


def test_the_digest_is_of_what_the_files_hold(place: Path) -> None:
    first = taken(place, "programs/job.py").digest
    assert taken(place, "programs/job.py").digest == first
    write(place, "sizes.py", "x = 2\n")
    second = taken(place, "programs/job.py").digest
    write(place, "sizes.py", "x = 3\n")
    assert len({first, second, taken(place, "programs/job.py").digest}) == 3


@pytest.mark.parametrize(
    "program",
    ["secret/other.py", "programs/../secret/other.py", "/etc/passwd", "..", "", "a\0b",
     "programs-2/job.py", "programs/.venv/job.py", "programs/sub/../../secret/other.py"],
)  # fmt: skip
def test_what_is_outside_is_refused(place: Path, program: str) -> None:
    (place / "programs-2").mkdir()
    (place / "programs-2" / "job.py").write_text("")
    write(place, ".venv/job.py", "")
    error = refused(place, program, "HR-SERVER-004")
    assert str(place / "programs") in str(error.hint)


def test_a_link_leads_where_it_leads(place: Path) -> None:
    (place / "programs" / "link.py").symlink_to(place / "secret" / "other.py")
    refused(place, "programs/link.py", "HR-SERVER-004")
    (place / "programs" / "away").symlink_to(place / "secret")
    refused(place, "programs/away/other.py", "HR-SERVER-004")
    (place / "programs" / "sizes.py").unlink()  # what the program imports
    (place / "programs" / "sizes.py").symlink_to(place / "secret" / "other.py")
    refused(place, "programs/job.py", "HR-SERVER-004")
    assert not (place / "version").exists()  # nor what comes before it
    write(place, "good.py", "")
    (place / "programs" / "sizes.py").unlink()
    (place / "programs" / "sizes.py").symlink_to(place / "programs" / "good.py")
    assert files(taken(place, "programs/job.py")) == ["job.py", "sizes.py"]


def test_an_allowed_folder_may_be_a_link(place: Path) -> None:
    (place / "here").symlink_to(place / "programs")
    assert taken(place, "here/job.py", "here").program == str(place / "programs" / "job.py")


def test_without_an_allowed_folder_nothing_is_taken(place: Path) -> None:
    with pytest.raises(ServerError) as caught:
        Programs((), place).resolve("programs/job.py")
    assert caught.value.code == "HR-SERVER-004" and "--programs DIR" in str(caught.value.hint)
    with pytest.raises(ServerError) as caught:
        Programs(("nowhere",), place)
    assert caught.value.code == "HR-SERVER-017"


def test_what_is_no_program_is_refused(place: Path) -> None:
    write(place, "notes.txt", "")
    refused(place, "programs/nothing.py", "HR-SERVER-014")
    refused(place, "programs/notes.txt", "HR-SERVER-014")


def test_a_program_has_a_size(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported, "MOST_BYTES", 10)
    refused(place, "programs/job.py", "HR-SERVER-016")


def test_errors_name_the_users_files(place: Path) -> None:
    snapshot = taken(place, "programs/job.py")
    said = snapshot.in_users_words(f"{snapshot.file}: no; {snapshot.folder}/sizes.py: no")
    assert said == f"{place}/programs/job.py: no; {place}/programs/sizes.py: no"
    write(place, "shop/job.py", "")
    snapshot = taken(place, "programs/shop")
    assert snapshot.in_users_words(str(snapshot.file)) == str(place / "programs/shop/job.py")


DEEP = ("-" * 200_000 + "1", "a" + ".a" * 200_000, "1+" * 200_000 + "1", "(" * 200_000)


@pytest.mark.parametrize("text", DEEP, ids=lambda text: text[:4])
def test_what_is_too_deep_to_be_read_is_copied_and_its_run_says_so(place: Path, text: str) -> None:
    write(place, "job.py", text)
    assert files(taken(place, "programs/job.py")) == ["job.py"]


def test_a_long_table_is_copied_and_not_read(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The syntax of eight megabytes would take gigabytes, and minutes."""
    monkeypatch.setattr(imported, "MOST_READ", 1_000)
    write(place, "job.py", "import table\n")
    write(place, "table.py", "import sizes\n" + "x = 1\n" * 1_000)
    assert files(taken(place, "programs/job.py")) == ["job.py", "table.py"]


def test_a_huge_file_is_refused_and_not_read(place: Path) -> None:
    with (place / "programs" / "job.py").open("wb") as file:
        file.truncate(200 << 30)  # nothing is on the disk
    refused(place, "programs/job.py", "HR-SERVER-016")


def test_a_folder_with_too_many_names_is_refused_early(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imported, "_MOST_NAMES", 10)
    for number in range(20):
        write(place, f"data/{number}.csv", "")
        write(place, f"many/a/{number}.txt", "")
    write(place, "job.py", "import data, many\n")  # neither has a module: others are meant
    assert files(taken(place, "programs/job.py")) == ["job.py"]
    write(place, "many/__init__.py", "")
    error = refused(place, "programs/job.py", "HR-SERVER-016")
    assert "many" in str(error)
    refused(place, "programs", "HR-SERVER-016")


def test_a_program_that_changes_while_it_is_copied(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is of one moment: it is made again, and refused if that does not help."""
    copied, turns = Programs._copied, list[int]()

    def copied_while_it_changes(self: Programs, *given: Any) -> Snapshot:
        made = copied(self, *given)
        turns.append(len(turns))
        if len(turns) <= times:
            write(place, "sizes.py", "x = 1\n" * len(turns))
            write(place, "job.py", f"import sizes\n# {'.' * len(turns)}\n")
        return made

    monkeypatch.setattr(Programs, "_copied", copied_while_it_changes)
    times = 2
    made = taken(place, "programs/job.py")
    for name in ("job.py", "sizes.py"):
        assert (made.folder / name).read_text() == (place / "programs" / name).read_text()
    times = 99
    refused(place, "programs/job.py", "HR-SERVER-035")


def test_what_cannot_be_copied_is_said(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (place / "version").write_text("")  # in the place of a folder
    assert "cannot be copied" in str(refused(place, "programs/job.py", "HR-SERVER-034"))
