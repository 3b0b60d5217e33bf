"""One tree of errors: what happened, where in the user's file, what to do.

    HeadraceError
    ├── PlanError         a program that cannot run; carries every problem found
    ├── InputError        an input that cannot be read: missing topic, bad file, port in use
    ├── OutputError       an output that cannot be written: permission, full disk
    ├── LogError          the stream storage: unknown topic, corrupt segment
    ├── StateError        the job's folder: corrupt, of another job, or not fitting the program
    │   └── FencedError   another driver has taken the folder
    ├── StepError         the user's own function raised
    ├── RunError          the run itself: bad settings, Java missing, Spark failed
    └── ServerError       the server of jobs refuses: no such job, not legal in its state

A message is lower case and factual, names things as the user named them, and has no
full stop. `hint` is a sentence that can be acted on. `code` is stable.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import FrameType

from headrace.notebook import cell_number

_PACKAGE = str(Path(__file__).parent) + os.sep
_NAME = __name__.partition(".")[0]
_PYTHON = tuple({sysconfig.get_path(p) + os.sep for p in ("stdlib", "platstdlib")})
_INSTALLED = re.compile(r"[\\/](?:site|dist)-packages[\\/](\w*)")
# libraries that call us back
_USED = {"pyarrow", "numpy", "duckdb", "sqlglot", "pyspark", "py4j", "typer", "click"}
_COMPILED = (".pxi", ".pyx", ".pxd", ".so", ".pyd")


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the user's program."""

    file: str
    line: int

    def __str__(self) -> str:
        cell = cell_number(self.file)
        if cell is not None:
            return f"cell [{cell}], line {self.line}"
        return f"{Path(self.file).name}:{self.line}"

    @property
    def quoted(self) -> str:
        """The line itself if it is in a cell of a notebook, which has no file to look into."""
        in_cell = cell_number(self.file) is not None
        return linecache.getline(self.file, self.line).strip() if in_cell else ""


_written: ContextVar[Site | None] = ContextVar("written", default=None)


@contextmanager
def building_at(site: Site | None) -> Iterator[None]:
    """The body builds what the user wrote at `site`, before."""
    token = _written.set(site)
    try:
        yield
    finally:
        _written.reset(token)


def call_site() -> Site | None:
    """The nearest caller outside this package: where the user wrote it."""
    if (site := _written.get()) is not None:
        return site
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    return Site(frame.f_code.co_filename, frame.f_lineno) if frame else None


def is_users(file: str) -> bool:
    """Whether a line of this file can be the user's: not ours, Python's, or compiled."""
    if file.startswith((_PACKAGE, "<frozen ")) or file.endswith(_COMPILED):
        return False
    installed = _INSTALLED.search(file)
    return installed[1] not in _USED if installed else not file.startswith(_PYTHON)


def _is_ours(frame: FrameType) -> bool:
    # By module too: the `__init__` that a dataclass writes for itself has no file.
    module = str(frame.f_globals.get("__name__", ""))
    return not is_users(frame.f_code.co_filename) or module.partition(".")[0] == _NAME


class HeadraceError(Exception):
    """Base of all errors; `str(error)` is what a user should read."""

    def __init__(
        self, code: str, message: str, hint: str | None = None, *, site: Site | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint
        self.site = site

    def __str__(self) -> str:
        where = f"  ({self.site})" if self.site else ""
        if self.site and (line := self.site.quoted):
            where += f"\n  > {line}"
        hint = "".join(f"\n  {line}" for line in (self.hint or "").splitlines())
        return f"{self.code} {self.message}{where}{hint}"

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: what happened, where and what to do; not the frames of ours."""
        return [str(self), *getattr(self, "__notes__", ())]

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message), self.__dict__)


def _rebuild(kind: type[HeadraceError], message: str) -> HeadraceError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    return error


class PlanError(HeadraceError):
    """A program that cannot run. `problems` holds one PlanError per problem."""

    def __init__(
        self,
        code: str,
        message: str,
        hint: str | None = None,
        *,
        site: Site | None = None,
        problems: Sequence[PlanError] = (),
    ) -> None:
        super().__init__(code, message, hint, site=site)
        self._parts = tuple(problems)

    @property
    def problems(self) -> tuple[PlanError, ...]:
        """One error for each problem; itself if it reports only one."""
        return self._parts or (self,)

    @classmethod
    def of(cls, problems: Sequence[PlanError]) -> PlanError:
        """One error that reports all `problems` at once."""
        every = [single for problem in problems for single in problem.problems]
        if len(every) == 1:
            return every[0]
        return cls("HR-PLAN-000", f"the program has {len(every)} problems", problems=every)

    def __str__(self) -> str:
        if not self._parts:
            return super().__str__()
        return "\n".join([f"{self.message}:", *(str(part) for part in self._parts)])


@contextmanager
def written_at(site: Site | None) -> Iterator[None]:
    """Errors of the body that name no line of the user's name this one."""
    try:
        yield
    except HeadraceError as error:
        error.site = error.site or site
        raise


def refusal(code: str, fact: str, hint: str) -> PlanError:
    """A program refused at the line where the user wrote it."""
    return PlanError(code, fact, hint, site=call_site())


def storable(text: str) -> str:
    """A text as it can be stored: half a character, as of a file name that is no text, spelt."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def said_by(error: BaseException | str) -> str:
    """Type and text of an error, as they can be stored."""
    return storable(error if isinstance(error, str) else f"{type(error).__name__}: {error}")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """The beginning of a hint for a name that is not known; empty if none is similar."""
    close = get_close_matches(str(name), list(known), 1)
    return f"Did you mean {close[0]!r}? " if close else ""


class InputError(HeadraceError):
    """An input that cannot be read."""


class OutputError(HeadraceError):
    """An output that cannot be written."""


class LogError(HeadraceError):
    """The stream storage."""


class StateError(HeadraceError):
    """The job's folder."""


class FencedError(StateError):
    """Another driver has taken the folder."""


class StepError(HeadraceError):
    """The user's function raised: on which record, in which step, where."""


class RunError(HeadraceError):
    """The run itself."""


class ServerError(HeadraceError):
    """The server of jobs: what it was asked for cannot be done."""
