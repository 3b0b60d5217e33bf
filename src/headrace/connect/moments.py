"""Times and dates of records as the whole numbers they are stored as, which Arrow takes as they
are: Python's own do not hold every one of them, and lose what is finer than a microsecond."""

from __future__ import annotations


class Micros(int):
    """Microseconds since 1970: a time that a `datetime` may not hold."""


class Days(int):
    """Days since 1970: a date that a `date` may not hold."""
