"""Stream storage: topics of partitions, appended to and read by offset.

`contract.py` says what a log is; `embedded.py` stores one in a folder, with no server. Programs
that are not jobs use `Producer` and `Consumer`; `clients.py` says what those need of a log.
"""

from headrace.log.clients import ConsumerRecord, PolledBatch, TopicPartition
from headrace.log.consumer import Consumer
from headrace.log.contract import APPEND_TIME, BYTES, Ack, Log, Partitioner, Records, TopicInfo
from headrace.log.embedded import EmbeddedLog
from headrace.log.group_admin import GroupInfo, MemberInfo
from headrace.log.producer import Producer

__all__ = [
    "APPEND_TIME",
    "BYTES",
    "Ack",
    "Consumer",
    "ConsumerRecord",
    "EmbeddedLog",
    "GroupInfo",
    "Log",
    "MemberInfo",
    "Partitioner",
    "PolledBatch",
    "Producer",
    "Records",
    "TopicInfo",
    "TopicPartition",
]
