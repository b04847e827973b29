"""FeatureLevelRecord (version 0):
type 12 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, STRING, Record, field


class FeatureLevelRecord(Record, type=12, versions="0", flexible="0+"):
    name: str = field(STRING, "0+")
    feature_level: int = field(INT16, "0+")
