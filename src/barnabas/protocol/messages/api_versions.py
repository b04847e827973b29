"""ApiVersions: API key 18, versions 0-5, flexible 3+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class ApiVersionsRequest(Message, api_key=18, versions="0-5", flexible="3+"):
    client_software_name: str = field(STRING, "3+", default="", ignorable=True)
    client_software_version: str = field(STRING, "3+", default="", ignorable=True)
    cluster_id: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    node_id: int = field(INT32, "5+", default=-1, ignorable=True)


class ApiVersion(Struct):
    api_key: int = field(INT16, "0+")
    min_version: int = field(INT16, "0+")
    max_version: int = field(INT16, "0+")


class SupportedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    min_version: int = field(INT16, "3+")
    max_version: int = field(INT16, "3+")


class FinalizedFeatureKey(Struct):
    name: str = field(STRING, "3+")
    max_version_level: int = field(INT16, "3+")
    min_version_level: int = field(INT16, "3+")


class ApiVersionsResponse(Message, api_key=18, versions="0-5", flexible="3+"):
    error_code: int = field(INT16, "0+")
    api_keys: list[ApiVersion] = field(array(ApiVersion), "0+")
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey), "3+", default=[], tag=0, ignorable=True
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey), "3+", default=[], tag=2, ignorable=True
    )
    zk_migration_ready: bool = field(BOOL, "3+", default=False, tag=3, ignorable=True)
