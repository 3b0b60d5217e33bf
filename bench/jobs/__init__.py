"""The jobs, one module each: how it is measured, and both contenders.

A module has `rows(lab)`, which gives its rows of the table, and `ours(params, place)` and
`theirs(params, place)`, which run in processes of their own. So it imports neither Headrace
nor PySpark at its top.
"""

from __future__ import annotations

NAMES = tuple("abcdefgklopqurstwxyhij")
