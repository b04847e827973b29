"""ConsumerGroupMemberMetadataKey (version 0),
ConsumerGroupMemberMetadataValue (version 0):
type 5 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT32, STRING, Record, Struct, array, field


class ConsumerGroupMemberMetadataKey(Record, type=5, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class ClassicProtocol(Struct):
    name: str = field(STRING, "0+")
    metadata: bytes = field(BYTES, "0+")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: int = field(INT32, "0+")
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol), "0+")


class ConsumerGroupMemberMetadataValue(Record, type=5, versions="0", flexible="0+"):
    instance_id: str | None = field(STRING, "0+", nullable="0+")
    rack_id: str | None = field(STRING, "0+", nullable="0+")
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    subscribed_topic_names: list[str] = field(array(STRING), "0+")
    subscribed_topic_regex: str | None = field(STRING, "0+", nullable="0+")
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    server_assignor: str | None = field(STRING, "0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = field(
        ClassicMemberMetadata, "0+", nullable="0+", default=ClassicMemberMetadata, tag=0
    )
