"""RenewDelegationToken: API key 39, versions 0-2, flexible 2+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import BYTES, INT16, INT32, INT64, Message, field


class RenewDelegationTokenRequest(Message, api_key=39, versions="0-2", flexible="2+"):
    hmac: bytes = field(BYTES, "0+")
    renew_period_ms: int = field(INT64, "0+")


class RenewDelegationTokenResponse(Message, api_key=39, versions="0-2", flexible="2+"):
    error_code: int = field(INT16, "0+")
    expiry_timestamp_ms: int = field(INT64, "0+")
    throttle_time_ms: int = field(INT32, "0+", default=0)
