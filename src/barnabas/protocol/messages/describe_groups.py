"""DescribeGroups: API key 15, versions 0-6, flexible 5+;
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


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[str] = field(array(STRING), "0+")
    include_authorized_operations: bool = field(BOOL, "3+", default=False)


class DescribedGroupMember(Struct):
    member_id: str = field(STRING, "0+")
    group_instance_id: str | None = field(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    member_metadata: bytes = field(BYTES, "0+")
    member_assignment: bytes = field(BYTES, "0+")


class DescribedGroup(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "6+", nullable="6+", default=None)
    group_id: str = field(STRING, "0+")
    group_state: str = field(STRING, "0+")
    protocol_type: str = field(STRING, "0+")
    protocol_data: str = field(STRING, "0+")
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember), "0+")
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup), "0+")
