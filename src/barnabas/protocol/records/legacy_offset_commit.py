"""LegacyOffsetCommitKey (version 0),
LegacyOffsetCommitValue (version 0):
type 0 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, STRING, Record, field


class LegacyOffsetCommitKey(Record, type=0, versions="0"):
    group: str = field(STRING, "0")
    topic: str = field(STRING, "0")
    partition: int = field(INT32, "0")


class LegacyOffsetCommitValue(Record, type=0, versions="0"):
    offset: int = field(INT64, "0")
    metadata: str = field(STRING, "0")
    commit_timestamp: int = field(INT64, "0")
