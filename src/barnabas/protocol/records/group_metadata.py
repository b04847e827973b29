"""GroupMetadataKey (version 0),
GroupMetadataValue (versions 0-4):
type 2 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT32, INT64, STRING, Record, Struct, array, field


class GroupMetadataKey(Record, type=2, versions="0"):
    group: str = field(STRING, "0")


class MemberMetadata(Struct):
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32, "0+")
    subscription: bytes = field(BYTES, "0+")
    assignment: bytes = field(BYTES, "0+")


class GroupMetadataValue(Record, type=2, versions="0-4", flexible="4+"):
    protocol_type: str = field(STRING, "0+")
    generation: int = field(INT32, "0+")
    protocol: str | None = field(STRING, "0+", nullable="0+")
    leader: str | None = field(STRING, "0+", nullable="0+")
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata), "0+")
