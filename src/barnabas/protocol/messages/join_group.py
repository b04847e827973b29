"""JoinGroup: API key 11, versions 0-9, flexible 6+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    BYTES,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class JoinGroupRequestProtocol(Struct):
    name: str = field(STRING, "0+")
    metadata: bytes = field(BYTES, "0+")


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: str = field(STRING, "0+")
    session_timeout_ms: int = field(INT32, "0+")
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = field(STRING, "0+")
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol), "0+")
    reason: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field(BYTES, "0+")


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+")
    generation_id: int = field(INT32, "0+", default=-1)
    protocol_type: str | None = field(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "0+", nullable="7+")
    leader: str = field(STRING, "0+")
    skip_assignment: bool = field(BOOL, "9+", default=False)
    member_id: str = field(STRING, "0+")
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember), "0+")
