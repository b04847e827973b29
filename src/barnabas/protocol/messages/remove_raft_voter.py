"""RemoveRaftVoter: API key 81, version 0, flexible 0+;
served on controller and broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, UUID, Message, field


class RemoveRaftVoterRequest(Message, api_key=81, versions="0", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+")
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")


class RemoveRaftVoterResponse(Message, api_key=81, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", ignorable=True)
