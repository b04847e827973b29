"""UnregisterController: API key 94, version 0, flexible 0+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, INT32, STRING, Message, field


class UnregisterControllerRequest(Message, api_key=94, versions="0", flexible="0+"):
    controller_id: int = field(INT32, "0+")


class UnregisterControllerResponse(Message, api_key=94, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")
