"""How precise an approximate aggregate is to be: `error=`, or `size=` in bytes."""

from __future__ import annotations

import re

from headrace.errors import PlanError, RunError, call_site

_UNITS = {"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20}
_TEXT = re.compile(r"\s*(\d+)\s*([a-z]*)\s*", re.IGNORECASE)


def check_error(what: str, error: object, size: object) -> None:
    """Refuse an error that is no share, and an error together with a size."""
    if error is not None and size is not None:
        raise PlanError(
            "HR-APPROX-002",
            f"{what} has both error= and size=",
            "Choose one: the error follows from the size, and the size from the error.",
            site=call_site(),
        )
    number = isinstance(error, int | float) and not isinstance(error, bool)
    if error is not None and not (number and 0 < float(error) < 1):  # type: ignore[arg-type]
        raise PlanError(
            "HR-APPROX-002",
            f"{what} has the error {error!r}",
            "Choose a share between 0 and 1: error=0.02 is two percent.",
            site=call_site(),
        )


def bytes_of(what: str, size: object) -> int | None:
    """A size in bytes: a number of them, or a text such as "4KB"."""
    if size is None:
        return None
    text = _TEXT.fullmatch(size) if isinstance(size, str) else None
    if text and text[2].lower() in _UNITS:
        return int(text[1]) * _UNITS[text[2].lower()]
    if isinstance(size, int) and not isinstance(size, bool) and size > 0:
        return size
    raise PlanError(
        "HR-APPROX-002",
        f"{what} has the size {size!r}",
        'Write bytes as a number, or as text: size=4096, size="4KB".',
        site=call_site(),
    )


def out_of_reach(what: str, wish: str, least: str) -> PlanError:
    """The error for a precision that no size, or a size that no precision, has."""
    return PlanError("HR-APPROX-003", f"{what} cannot have {wish}", least, site=call_site())


def in_words(count: int) -> str:
    """Bytes for people."""
    for unit, name in ((1 << 20, "MB"), (1 << 10, "KB")):
        if count >= unit:
            return f"{count / unit:.1f}".removesuffix(".0") + f" {name}"
    return f"{count} bytes"


def too_large() -> RunError:
    """The error for sketches of one batch that do not fit in one column."""
    return RunError(
        "HR-APPROX-004",
        "the sketches that one batch touches take more than 2 GB",
        "Choose a larger error=, or smaller batches: hr.run(job, max_batch=...).",
    )
