"""SaslHandshake: API key 17, versions 0-1, never flexible;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import INT16, STRING, Message, array, field


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: str = field(STRING, "0+")


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: int = field(INT16, "0+")
    mechanisms: list[str] = field(array(STRING), "0+")
