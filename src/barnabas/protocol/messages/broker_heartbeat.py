"""BrokerHeartbeat: API key 63, versions 0-2, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BOOL, INT16, INT32, INT64, UUID, Message, array, field


class BrokerHeartbeatRequest(Message, api_key=63, versions="0-2", flexible="0+"):
    broker_id: int = field(INT32, "0+")
    broker_epoch: int = field(INT64, "0+", default=-1)
    current_metadata_offset: int = field(INT64, "0+")
    want_fence: bool = field(BOOL, "0+")
    want_shut_down: bool = field(BOOL, "0+")
    offline_log_dirs: list[bytes] = field(array(UUID), "1+", default=[], tag=0)
    cordoned_log_dirs: list[bytes] | None = field(
        array(UUID), "2+", nullable="2+", default=None, tag=1
    )


class BrokerHeartbeatResponse(Message, api_key=63, versions="0-2", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    is_caught_up: bool = field(BOOL, "0+", default=False)
    is_fenced: bool = field(BOOL, "0+", default=True)
    should_shut_down: bool = field(BOOL, "0+")
