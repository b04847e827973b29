"""DescribeConfigs: API key 32, versions 0-4, flexible 4+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class DescribeConfigsResource(Struct):
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configuration_keys: list[str] | None = field(array(STRING), "0+", nullable="0+")


class DescribeConfigsRequest(Message, api_key=32, versions="0-4", flexible="4+"):
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource), "0+")
    include_synonyms: bool = field(BOOL, "1+", default=False)
    include_documentation: bool = field(BOOL, "3+", default=False)


class DescribeConfigsSynonym(Struct):
    name: str = field(STRING, "1+")
    value: str | None = field(STRING, "1+", nullable="0+")
    source: int = field(INT8, "1+")


class DescribeConfigsResourceResult(Struct):
    name: str = field(STRING, "0+")
    value: str | None = field(STRING, "0+", nullable="0+")
    read_only: bool = field(BOOL, "0+")
    is_default: bool = field(BOOL, "0", default=False)
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "0+")
    synonyms: list[DescribeConfigsSynonym] = field(
        array(DescribeConfigsSynonym), "1+", default=[], ignorable=True
    )
    config_type: int = field(INT8, "3+", default=0, ignorable=True)
    documentation: str | None = field(STRING, "3+", nullable="0+", default="", ignorable=True)


class DescribeConfigsResult(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult), "0+")


class DescribeConfigsResponse(Message, api_key=32, versions="0-4", flexible="4+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult), "0+")
