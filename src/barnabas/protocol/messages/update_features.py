"""UpdateFeatures: API key 57, versions 0-2, flexible 0+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, Message, Struct, array, field


class FeatureUpdateKey(Struct):
    feature: str = field(STRING, "0+")
    max_version_level: int = field(INT16, "0+")
    allow_downgrade: bool = field(BOOL, "0", default=False)
    upgrade_type: int = field(INT8, "1+", default=1)


class UpdateFeaturesRequest(Message, api_key=57, versions="0-2", flexible="0+"):
    timeout_ms: int = field(INT32, "0+", default=60000)
    feature_updates: list[FeatureUpdateKey] = field(array(FeatureUpdateKey), "0+")
    validate_only: bool = field(BOOL, "1+", default=False)


class UpdatableFeatureResult(Struct):
    feature: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class UpdateFeaturesResponse(Message, api_key=57, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
    results: list[UpdatableFeatureResult] = field(
        array(UpdatableFeatureResult), "0-1", default=[], ignorable=True
    )
