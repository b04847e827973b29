"""CreateDelegationToken: API key 38, versions 0-3, flexible 2+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BYTES,
    INT16,
    INT32,
    INT64,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class CreatableRenewers(Struct):
    principal_type: str = field(STRING, "0+")
    principal_name: str = field(STRING, "0+")


class CreateDelegationTokenRequest(Message, api_key=38, versions="0-3", flexible="2+"):
    owner_principal_type: str | None = field(STRING, "3+", nullable="3+", default="")
    owner_principal_name: str | None = field(STRING, "3+", nullable="3+", default="")
    renewers: list[CreatableRenewers] = field(array(CreatableRenewers), "0+")
    max_lifetime_ms: int = field(INT64, "0+")


class CreateDelegationTokenResponse(Message, api_key=38, versions="0-3", flexible="2+"):
    error_code: int = field(INT16, "0+")
    principal_type: str = field(STRING, "0+")
    principal_name: str = field(STRING, "0+")
    token_requester_principal_type: str = field(STRING, "3+", default="")
    token_requester_principal_name: str = field(STRING, "3+", default="")
    issue_timestamp_ms: int = field(INT64, "0+")
    expiry_timestamp_ms: int = field(INT64, "0+")
    max_timestamp_ms: int = field(INT64, "0+")
    token_id: str = field(STRING, "0+")
    hmac: bytes = field(BYTES, "0+")
    throttle_time_ms: int = field(INT32, "0+", default=0)
