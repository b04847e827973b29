"""AddRaftVoter: API key 80, versions 0-1, flexible 0+;
served on controller and broker listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BOOL,
    INT16,
    INT32,
    STRING,
    UINT16,
    UUID,
    Message,
    Struct,
    array,
    field,
)


class Listener(Struct):
    name: str = field(STRING, "0+")
    host: str = field(STRING, "0+")
    port: int = field(UINT16, "0+")


class AddRaftVoterRequest(Message, api_key=80, versions="0-1", flexible="0+"):
    cluster_id: str | None = field(STRING, "0+", nullable="0+")
    timeout_ms: int = field(INT32, "0+")
    voter_id: int = field(INT32, "0+")
    voter_directory_id: bytes = field(UUID, "0+")
    listeners: list[Listener] = field(array(Listener), "0+")
    ack_when_committed: bool = field(BOOL, "1+", default=True)


class AddRaftVoterResponse(Message, api_key=80, versions="0-1", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+", ignorable=True)
