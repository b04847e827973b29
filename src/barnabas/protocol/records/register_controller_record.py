"""RegisterControllerRecord (version 0):
type 27 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Record,
    Struct,
    array,
    field,
)


class ControllerEndpoint(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")
    security_protocol: int = field(INT16, "0+")


class ControllerFeature(Struct):
    name: str = field(STRING, "0+")
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class RegisterControllerRecord(Record, type=27, versions="0", flexible="0+"):
    controller_id: int = field(INT32, "0+")
    incarnation_id: bytes = field(UUID, "0+")
    zk_migration_ready: bool = field(BOOL, "0+")
    end_points: list[ControllerEndpoint] = field(array(ControllerEndpoint), "0+")
    features: list[ControllerFeature] = field(array(ControllerFeature), "0+")
