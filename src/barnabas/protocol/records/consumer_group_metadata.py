"""ConsumerGroupMetadataKey (version 0),
ConsumerGroupMetadataValue (version 0):
type 3 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, INT64, STRING, Record, field


class ConsumerGroupMetadataKey(Record, type=3, versions="0"):
    group_id: str = field(STRING, "0")


class ConsumerGroupMetadataValue(Record, type=3, versions="0", flexible="0+"):
    epoch: int = field(INT32, "0+")
    metadata_hash: int = field(INT64, "0+", default=0, tag=0)
