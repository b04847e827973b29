"""PartitionChangeRecord (versions 0-2):
type 5 of the metadata log.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT8, INT32, UUID, Record, array, field


class PartitionChangeRecord(Record, type=5, versions="0-2", flexible="0+"):
    partition_id: int = field(INT32, "0+", default=-1)
    topic_id: bytes = field(UUID, "0+")
    isr: list[int] | None = field(array(INT32), "0+", nullable="0+", default=None, tag=0)
    leader: int = field(INT32, "0+", default=-2, tag=1)
    replicas: list[int] | None = field(array(INT32), "0+", nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = field(
        array(INT32), "0+", nullable="0+", default=None, tag=3
    )
    adding_replicas: list[int] | None = field(
        array(INT32), "0+", nullable="0+", default=None, tag=4
    )
    leader_recovery_state: int = field(INT8, "0+", default=-1, tag=5)
    directories: list[bytes] | None = field(array(UUID), "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = field(
        array(INT32), "2+", nullable="2+", default=None, tag=6
    )
    last_known_elr: list[int] | None = field(array(INT32), "2+", nullable="2+", default=None, tag=7)
