"""What windows of time mean, in plain Python: the judge of the real operator.

Nothing here knows Headrace. `core.py` is the whole of it in 50 lines of code; the rest says
what the words in it mean, and no pair of an assigner and a trigger needs more of it than two
functions of a few lines. Rows are kept one by one and every fact that a trigger asks for is
worked out from them anew, so that there is little that could be wrong.

    records.py    a row, a program, a window, a moment: no more than names for facts
    core.py       rows go into windows, windows meet, fire, show and are forgotten
    assigners.py  where: a function for each assigner
    triggers.py   when: a function for each trigger
    results.py    what: a function for each evictor and each window function

A spec is a tuple of a name and arguments: the name is a function's, which gets the arguments.
Times are milliseconds.
"""

from tests.windows.model.core import Model
from tests.windows.model.records import ALWAYS, NEVER, Row, Spec
from tests.windows.model.triggers import safe

__all__ = ["ALWAYS", "NEVER", "Model", "Row", "Spec", "safe"]
