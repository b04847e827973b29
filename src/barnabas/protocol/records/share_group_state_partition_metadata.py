"""ShareGroupStatePartitionMetadataKey (version 0),
ShareGroupStatePartitionMetadataValue (version 0):
type 15 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, STRING, UUID, Record, Struct, array, field


class ShareGroupStatePartitionMetadataKey(Record, type=15, versions="0"):
    group_id: str = field(STRING, "0")


class TopicPartitionsInfo(Struct):
    topic_id: bytes = field(UUID, "0+")
    topic_name: str = field(STRING, "0+")
    partitions: list[int] = field(array(INT32), "0+")


class TopicInfo(Struct):
    topic_id: bytes = field(UUID, "0+")
    topic_name: str = field(STRING, "0+")


class ShareGroupStatePartitionMetadataValue(Record, type=15, versions="0", flexible="0+"):
    initializing_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo), "0+")
    initialized_topics: list[TopicPartitionsInfo] = field(array(TopicPartitionsInfo), "0+")
    deleting_topics: list[TopicInfo] = field(array(TopicInfo), "0+")
