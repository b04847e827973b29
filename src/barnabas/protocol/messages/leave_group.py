"""LeaveGroup: API key 13, versions 0-5, flexible 4+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class MemberIdentity(Struct):
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    reason: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: str = field(STRING, "0+")
    member_id: str = field(STRING, "0-2", default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+", default=[])


class MemberResponse(Struct):
    member_id: str = field(STRING, "3+")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+")
    error_code: int = field(INT16, "3+")


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+")
    members: list[MemberResponse] = field(array(MemberResponse), "3+", default=[])
