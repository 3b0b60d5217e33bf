"""Stream storage: topics of partitions, appended to and read by offset.

`contract.py` says what a log is; `embedded.py` stores one in a folder, with no server.
"""

from headrace.log.contract import APPEND_TIME, BYTES, Ack, Log, Partitioner, Records, TopicInfo
from headrace.log.embedded import EmbeddedLog

__all__ = [
    "APPEND_TIME",
    "BYTES",
    "Ack",
    "EmbeddedLog",
    "Log",
    "Partitioner",
    "Records",
    "TopicInfo",
]
