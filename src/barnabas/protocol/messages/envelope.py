"""Envelope: API key 58, version 0, flexible 0+;
served on controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, Message, field


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: bytes = field(BYTES, "0+")
    request_principal: bytes | None = field(BYTES, "0+", nullable="0+")
    client_host_address: bytes = field(BYTES, "0+")


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: bytes | None = field(BYTES, "0+", nullable="0+", default=None)
    error_code: int = field(INT16, "0+")
