"""RemoveUserScramCredentialRecord (version 0):
type 22 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, STRING, Record, field


class RemoveUserScramCredentialRecord(Record, type=22, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")
