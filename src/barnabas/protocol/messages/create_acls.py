"""CreateAcls: API key 30, versions 0-3, flexible 2+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class AclCreation(Struct):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    resource_pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class CreateAclsRequest(Message, api_key=30, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = field(array(AclCreation), "0+")


class AclCreationResult(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class CreateAclsResponse(Message, api_key=30, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[AclCreationResult] = field(array(AclCreationResult), "0+")
