"""ShareUpdateKey (version 0),
ShareUpdateValue (version 0):
type 1 of the share coordinator's log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UUID,
    Record,
    Struct,
    array,
    field,
)


class ShareUpdateKey(Record, type=1, versions="0"):
    group_id: str = field(STRING, "0")
    topic_id: bytes = field(UUID, "0")
    partition: int = field(INT32, "0")


class StateBatch(Struct):
    first_offset: int = field(INT64, "0+")
    last_offset: int = field(INT64, "0+")
    delivery_state: int = field(INT8, "0+")
    delivery_count: int = field(INT16, "0+")


class ShareUpdateValue(Record, type=1, versions="0", flexible="0+"):
    snapshot_epoch: int = field(INT32, "0+")
    leader_epoch: int = field(INT32, "0+")
    start_offset: int = field(INT64, "0+")
    delivery_complete_count: int = field(INT32, "0+", default=-1, tag=0)
    state_batches: list[StateBatch] = field(array(StateBatch), "0+")
