"""What a job reads: the contract of a source, the sources, and decoding."""

from headrace.sources.contract import RAW, Offset, Range, Source
from headrace.sources.formats import decode
from headrace.sources.memory import MemorySource, rows
from headrace.sources.open import open_source

__all__ = ["RAW", "MemorySource", "Offset", "Range", "Source", "decode", "open_source", "rows"]
