"""ConsumerGroupPartitionMetadataKey (version 0),
ConsumerGroupPartitionMetadataValue (version 0):
type 4 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, STRING, UUID, Record, Struct, array, field


class ConsumerGroupPartitionMetadataKey(Record, type=4, versions="0"):
    group_id: str = field(STRING, "0")


class PartitionMetadata(Struct):
    partition: int = field(INT32, "0+")
    racks: list[str] = field(array(STRING), "0+")


class TopicMetadata(Struct):
    topic_id: bytes = field(UUID, "0+")
    topic_name: str = field(STRING, "0+")
    num_partitions: int = field(INT32, "0+")
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata), "0+")


class ConsumerGroupPartitionMetadataValue(Record, type=4, versions="0", flexible="0+"):
    topics: list[TopicMetadata] = field(array(TopicMetadata), "0+")
