"""BrokerRegistration: API key 62, versions 0-4, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class Listener(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class Feature(Struct):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class BrokerRegistrationRequest(Message, api_key=62, versions="0-4", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    cluster_id: str = field(STRING, "0+")
    incarnation_id: bytes = field(UUID, "0+")
    listeners: list[Listener] = field(array(Listener), "0+")
    features: list[Feature] = field(array(Feature), "0+")
    rack: str | None = field(STRING, "0+", nullable="0+")
    is_migrating_zk_broker: bool = field(BOOL, "1+", default=False)
    log_dirs: list[bytes] = field(array(UUID), "2+", default=[], ignorable=True)
    previous_broker_epoch: int = field(INT64, "3+", default=-1, ignorable=True)


class BrokerRegistrationResponse(Message, api_key=62, versions="0-4", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
