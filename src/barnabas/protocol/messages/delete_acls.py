"""DeleteAcls: API key 31, versions 0-3, flexible 2+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT16, INT32, STRING, Message, Struct, array, field


class DeleteAclsFilter(Struct):
    resource_type_filter: int = field(INT8, "0+")
    resource_name_filter: str | None = field(STRING, "0+", nullable="0+")
    pattern_type_filter: int = field(INT8, "1+", default=3)
    principal_filter: str | None = field(STRING, "0+", nullable="0+")
    host_filter: str | None = field(STRING, "0+", nullable="0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class DeleteAclsRequest(Message, api_key=31, versions="0-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field(array(DeleteAclsFilter), "0+")


class DeleteAclsMatchingAcl(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    resource_type: int = field(INT8, "0+")
    resource_name: str = field(STRING, "0+")
    pattern_type: int = field(INT8, "1+", default=3)
    principal: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    operation: int = field(INT8, "0+")
    permission_type: int = field(INT8, "0+")


class DeleteAclsFilterResult(Struct):
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = field(array(DeleteAclsMatchingAcl), "0+")


class DeleteAclsResponse(Message, api_key=31, versions="0-3", flexible="2+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    filter_results: list[DeleteAclsFilterResult] = field(array(DeleteAclsFilterResult), "0+")
