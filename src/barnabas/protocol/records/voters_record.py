"""VotersRecord (version 0):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
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


class Endpoint(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class KRaftVersionFeature(Struct):
    min_supported_version: int = field(INT16, "0+")
    max_supported_version: int = field(INT16, "0+")


class Voter(Struct):
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")
    endpoints: list[Endpoint] = field(array(Endpoint), "0+")
    kraft_version_feature: KRaftVersionFeature = field(KRaftVersionFeature, "0+")


class VotersRecord(Record, versions="0", flexible="0+"):
    version: int = field(INT16, "0+")
    voters: list[Voter] = field(array(Voter), "0+")
