"""GetTelemetrySubscriptions: API key 71, version 0, flexible 0+;
served on broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, Message, array, field


class GetTelemetrySubscriptionsRequest(Message, api_key=71, versions="0", flexible="0+"):
    client_instance_id: bytes = field(UUID, "0+")


class GetTelemetrySubscriptionsResponse(Message, api_key=71, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    client_instance_id: bytes = field(UUID, "0+")
    subscription_id: int = field(INT32, "0+")
    accepted_compression_types: list[int] = field(array(INT8), "0+")
    push_interval_ms: int = field(INT32, "0+")
    telemetry_max_bytes: int = field(INT32, "0+")
    delta_temporality: bool = field(BOOL, "0+")
    requested_metrics: list[str] = field(array(STRING), "0+")
