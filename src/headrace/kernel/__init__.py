"""The kernel: expressions run over Arrow chunks, mostly by DuckDB.

What the other rooms run with is here. The modules inside import one another and take no name
from this page, so there is no circle; `duckdb` alone imports the library.
"""

from headrace.kernel.compiled import Kernel, compile_chain, never_true, value_of
from headrace.kernel.json_rows import decode_json, is_document
from headrace.kernel.sql import SelectStep, infer

__all__ = [
    "Kernel", "SelectStep", "compile_chain", "decode_json", "infer", "is_document", "never_true",
    "value_of",
]  # fmt: skip
