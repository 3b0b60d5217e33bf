"""What a job reads: the contract of a source, the sources, and decoding."""

from headrace.sources.contract import RAW, Offset, Range, Source
from headrace.sources.formats import decode
from headrace.sources.generate import generate
from headrace.sources.memory import rows
from headrace.sources.open import check_input, check_options, open_source
from headrace.sources.own import Input

__all__ = [
    "RAW", "Input", "Offset", "Range", "Source", "check_input", "check_options", "decode",
    "generate", "open_source", "rows",
]  # fmt: skip
