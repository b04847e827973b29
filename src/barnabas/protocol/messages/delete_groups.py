"""DeleteGroups: API key 42, versions 0-3, flexible 2+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+"):
    groups_names: list[str] = field(array(STRING), "0+")


class DeletableGroupResult(Struct):
    group_id: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult), "0+")
