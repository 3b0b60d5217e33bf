"""Notebooks for tests: cells that a kernel of IPython's executes, and what they show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbclient
import nbformat


def executed(cells: Sequence[str], folder: Path, timeout: int = 120) -> list[Any]:
    """The cells after they were executed in `folder`, one after the other, errors included."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    client = nbclient.NotebookClient(
        notebook,
        timeout=timeout,
        allow_errors=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return list(notebook.cells)


def html(cell: Any) -> list[str]:
    """The HTML below a cell, one for each thing that is shown there."""
    data = [o["data"] for o in cell.outputs if o.output_type in ("display_data", "execute_result")]
    return [d["text/html"] for d in data if "text/html" in d]


def failure(cell: Any) -> str:
    """What IPython shows of the error that a cell raised."""
    (error,) = [o for o in cell.outputs if o.output_type == "error"]
    return "\n".join(error.traceback)


def printed(cell: Any) -> str:
    return "".join(o.text for o in cell.outputs if o.output_type == "stream")
