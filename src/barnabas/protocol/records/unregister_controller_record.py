"""UnregisterControllerRecord (version 0):
type 29 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT32, Record, field


class UnregisterControllerRecord(Record, type=29, versions="0", flexible="0+"):
    controller_id: int = field(INT32, "0+")
