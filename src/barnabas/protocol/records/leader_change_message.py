"""LeaderChangeMessage (versions 0-1):
kept in control batches and clients' payloads.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, UUID, ZERO_UUID, Record, Struct, array, field


class Voter(Struct):
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "1+", default=ZERO_UUID)


class LeaderChangeMessage(Record, versions="0-1", flexible="0+"):
    version: int = field(INT16, "0+")
    leader_id: int = field(INT32, "0+")
    voters: list[Voter] = field(array(Voter), "0+")
    granting_voters: list[Voter] = field(array(Voter), "0+")
