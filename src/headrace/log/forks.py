"""Clients with threads of their own, in processes that are forked while there are such clients.

A forked child has none of the threads, and a client that is freed there waits for them for ever,
or ends the process. So the child never frees what its parent made; it makes clients of its own.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

_clients = weakref.WeakSet[Any]()


def left_to_parent(holder: Any) -> None:
    """Never free this object, which holds a client, in processes that are forked from now on."""
    _clients.add(holder)


def _never_free() -> None:
    for holder in list(_clients):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
    _clients.clear()


os.register_at_fork(after_in_child=_never_free)
