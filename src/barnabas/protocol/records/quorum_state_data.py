"""QuorumStateData (versions 0-1):
kept in the quorum state file.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    INT32,
    INT64,
    STRING,
    UUID,
    ZERO_UUID,
    Record,
    Struct,
    array,
    field,
)


class Voter(Struct):
    voter_id: int = field(INT32, "0")


class QuorumStateData(Record, versions="0-1", flexible="0+"):
    cluster_id: str = field(STRING, "0", default="")
    leader_id: int = field(INT32, "0+", default=-1)
    leader_epoch: int = field(INT32, "0+", default=-1)
    voted_id: int = field(INT32, "0+", default=-1)
    voted_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID)
    applied_offset: int = field(INT64, "0", default=0)
    current_voters: list[Voter] | None = field(array(Voter), "0", nullable="0", default=[])
