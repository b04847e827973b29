"""ProducerSnapshot (version 1):
kept in the broker's storage.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, INT64, UINT32, Record, Struct, array, field


class ProducerEntry(Struct):
    producer_id: int = field(INT64, "1")
    epoch: int = field(INT16, "1")
    last_sequence: int = field(INT32, "1")
    last_offset: int = field(INT64, "1")
    offset_delta: int = field(INT32, "1")
    timestamp: int = field(INT64, "1")
    coordinator_epoch: int = field(INT32, "1")
    current_txn_first_offset: int = field(INT64, "1")


class ProducerSnapshot(Record, versions="1"):
    crc: int = field(UINT32, "1")
    producer_entries: list[ProducerEntry] = field(array(ProducerEntry), "1")
