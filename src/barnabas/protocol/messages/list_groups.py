"""ListGroups: API key 16, versions 0-5, flexible 3+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, Struct, array, field


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[str] = field(array(STRING), "4+", default=[])
    types_filter: list[str] = field(array(STRING), "5+", default=[])


class ListedGroup(Struct):
    group_id: str = field(STRING, "0+")
    protocol_type: str = field(STRING, "0+")
    group_state: str = field(STRING, "4+", default="", ignorable=True)
    group_type: str = field(STRING, "5+", default="", ignorable=True)


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0+")
    groups: list[ListedGroup] = field(array(ListedGroup), "0+")
