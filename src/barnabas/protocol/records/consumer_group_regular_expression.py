"""ConsumerGroupRegularExpressionKey (version 0),
ConsumerGroupRegularExpressionValue (version 0):
type 16 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT64, STRING, Record, array, field


class ConsumerGroupRegularExpressionKey(Record, type=16, versions="0"):
    group_id: str = field(STRING, "0")
    regular_expression: str = field(STRING, "0")


class ConsumerGroupRegularExpressionValue(Record, type=16, versions="0", flexible="0+"):
    topics: list[str] = field(array(STRING), "0+")
    version: int = field(INT64, "0+")
    timestamp: int = field(INT64, "0+")
