"""PartitionRecord (versions 0-2):
type 3 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT32, UUID, Record, array, field


class PartitionRecord(Record, type=3, versions="0-2", flexible="0+"):
    partition_id: int = field(INT32, "0+", default=-1)
    topic_id: bytes = field(UUID, "0+")
    replicas: list[int] = field(array(INT32), "0+")
    isr: list[int] = field(array(INT32), "0+")
    removing_replicas: list[int] = field(array(INT32), "0+")
    adding_replicas: list[int] = field(array(INT32), "0+")
    leader: int = field(INT32, "0+", default=-1)
    leader_recovery_state: int = field(INT8, "0+", default=0, tag=0)
    leader_epoch: int = field(INT32, "0+", default=-1)
    partition_epoch: int = field(INT32, "0+", default=-1)
    directories: list[bytes] = field(array(UUID), "1+", default=[])
    eligible_leader_replicas: list[int] | None = field(
        array(INT32), "2+", nullable="2+", default=None, tag=1
    )
    last_known_elr: list[int] | None = field(array(INT32), "2+", nullable="2+", default=None, tag=2)
