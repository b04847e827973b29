"""RemoveDelegationTokenRecord (version 0):
type 26 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import STRING, Record, field


class RemoveDelegationTokenRecord(Record, type=26, versions="0", flexible="0+"):
    token_id: str = field(STRING, "0+")
