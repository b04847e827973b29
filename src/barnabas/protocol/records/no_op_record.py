"""NoOpRecord (version 0):
type 20 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import Record


class NoOpRecord(Record, type=20, versions="0", flexible="0+"):
    pass
