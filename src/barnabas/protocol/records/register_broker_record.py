"""RegisterBrokerRecord (versions 0-4):
type 0 of the metadata log.

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
    Record,
    Struct,
    array,
    field,
)


class BrokerEndpoint(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class BrokerFeature(Struct):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class RegisterBrokerRecord(Record, type=0, versions="0-4", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    is_migrating_zk_broker: bool = field(BOOL, "2+", default=False)
    incarnation_id: bytes = field(UUID, "0+")
    broker_epoch: int = field(INT64, "0+")
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint), "0+")
    features: list[BrokerFeature] = field(array(BrokerFeature), "0+")
    rack: str | None = field(STRING, "0+", nullable="0+")
    fenced: bool = field(BOOL, "0+", default=True)
    in_controlled_shutdown: bool = field(BOOL, "1+", default=False)
    log_dirs: list[bytes] = field(array(UUID), "3+", default=[], tag=0)
    cordoned_log_dirs: list[bytes] | None = field(
        array(UUID), "4+", nullable="4+", default=None, tag=1
    )
