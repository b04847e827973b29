"""DelegationTokenRecord (version 0):
type 10 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT64, STRING, Record, array, field


class DelegationTokenRecord(Record, type=10, versions="0", flexible="0+"):
    owner: str = field(STRING, "0+")
    requester: str = field(STRING, "0+")
    renewers: list[str] = field(array(STRING), "0+")
    issue_timestamp: int = field(INT64, "0+")
    max_timestamp: int = field(INT64, "0+")
    expiration_timestamp: int = field(INT64, "0+")
    token_id: str = field(STRING, "0+")
