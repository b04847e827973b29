"""FindCoordinator: API key 10, versions 0-6, flexible 3+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: str = field(STRING, "0-3", default="")
    key_type: int = field(INT8, "1+", default=0)
    coordinator_keys: list[str] = field(array(STRING), "4+", default=[])


class Coordinator(Struct):
    key: str = field(STRING, "4+")
    node_id: int = field(INT32, "4+")
    host: str = field(STRING, "4+")
    port: int = field(INT32, "4+")
    error_code: int = field(INT16, "4+")
    error_message: str | None = field(STRING, "4+", nullable="4+", ignorable=True)


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0-3", default=0)
    error_message: str | None = field(STRING, "1-3", nullable="1-3", default="", ignorable=True)
    node_id: int = field(INT32, "0-3", default=0)
    host: str = field(STRING, "0-3", default="")
    port: int = field(INT32, "0-3", default=0)
    coordinators: list[Coordinator] = field(array(Coordinator), "4+", default=[])
