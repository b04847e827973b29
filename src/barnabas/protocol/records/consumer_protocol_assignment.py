"""ConsumerProtocolAssignment (versions 0-3):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT32, STRING, Record, Struct, array, field


class TopicPartition(Struct):
    topic: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class ConsumerProtocolAssignment(Record, versions="0-3"):
    assigned_partitions: list[TopicPartition] = field(array(TopicPartition), "0+")
    user_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
