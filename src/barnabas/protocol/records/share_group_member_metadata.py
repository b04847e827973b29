"""ShareGroupMemberMetadataKey (version 0),
ShareGroupMemberMetadataValue (version 0):
type 10 of the group coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import STRING, Record, array, field


class ShareGroupMemberMetadataKey(Record, type=10, versions="0"):
    group_id: str = field(STRING, "0")
    member_id: str = field(STRING, "0")


class ShareGroupMemberMetadataValue(Record, type=10, versions="0", flexible="0+"):
    rack_id: str | None = field(STRING, "0+", nullable="0+")
    client_id: str = field(STRING, "0+")
    client_host: str = field(STRING, "0+")
    subscribed_topic_names: list[str] = field(array(STRING), "0+")
