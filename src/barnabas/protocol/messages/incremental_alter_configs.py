"""IncrementalAlterConfigs: API key 44, versions 0-1, flexible 1+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class AlterableConfig(Struct):
    name: str = field(STRING, "0+")
    config_operation: int = field(INT8, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")


class AlterConfigsResource(Struct):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[AlterableConfig] = field(array(AlterableConfig), "0+")


class IncrementalAlterConfigsRequest(Message, api_key=44, versions="0-1", flexible="1+"):
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), "0+")
    validate_only: bool = field(BOOL, "0+")


class AlterConfigsResourceResponse(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")


class IncrementalAlterConfigsResponse(Message, api_key=44, versions="0-1", flexible="1+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse), "0+")
