"""OffsetCommitKey (version 0),
OffsetCommitValue (versions 0-4):
type 1 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, STRING, UUID, ZERO_UUID, Record, field


class OffsetCommitKey(Record, type=1, versions="0"):
    group: str = field(STRING, "0")
    topic: str = field(STRING, "0")
    partition: int = field(INT32, "0")


class OffsetCommitValue(Record, type=1, versions="0-4", flexible="4+"):
    offset: int = field(INT64, "0+")
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING, "0+")
    commit_timestamp: int = field(INT64, "0+")
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", default=ZERO_UUID, tag=0, ignorable=True)
