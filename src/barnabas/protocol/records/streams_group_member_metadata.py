"""StreamsGroupMemberMetadataKey (version 0),
StreamsGroupMemberMetadataValue (version 0):
type 19 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, STRING, UINT16, Record, Struct, array, field


class StreamsGroupMemberMetadataKey(Record, type=19, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class Endpoint(Struct):
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class KeyValue(Struct):
    key: str = field(STRING, "0+")
    value: str = field(STRING, "0+")


class StreamsGroupMemberMetadataValue(Record, type=19, versions="0", flexible="0+"):
    instance_id: str | None = field(STRING, "0+", nullable="0+")
    rack_id: str | None = field(STRING, "0+", nullable="0+")
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    rebalance_timeout_ms: int = field(INT32, "0+", default=-1)
    topology_epoch: int = field(INT32, "0+")
    process_id: str = field(STRING, "0+")
    user_endpoint: Endpoint | None = field(Endpoint, "0+", nullable="0+", default=None)
    client_tags: list[KeyValue] = field(array(KeyValue), "0+")
