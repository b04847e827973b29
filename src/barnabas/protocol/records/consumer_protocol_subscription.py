"""ConsumerProtocolSubscription (versions 0-3):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT32, STRING, Record, Struct, array, field


class TopicPartition(Struct):
    topic: str = field(STRING, "1+")
    partitions: list[int] = field(array(INT32), "1+")


class ConsumerProtocolSubscription(Record, versions="0-3"):
    topics: list[str] = field(array(STRING), "0+")
    user_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(
        array(TopicPartition), "1+", default=[], ignorable=True
    )
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
