"""UserScramCredentialRecord (version 0):
type 11 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT8, INT32, STRING, Record, field


class UserScramCredentialRecord(Record, type=11, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")
    salt: bytes = field(BYTES, "0+")
    stored_key: bytes = field(BYTES, "0+")
    server_key: bytes = field(BYTES, "0+")
    iterations: int = field(INT32, "0+")
