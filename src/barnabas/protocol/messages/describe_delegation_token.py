"""DescribeDelegationToken: API key 41, versions 0-3, flexible 2+;
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


class DescribeDelegationTokenOwner(Struct):
    principal_type: str = field(STRING, "0+")
    principal_name: str = field(STRING, "0+")


class DescribeDelegationTokenRequest(Message, api_key=41, versions="0-3", flexible="2+"):
    owners: list[DescribeDelegationTokenOwner] | None = field(
        array(DescribeDelegationTokenOwner), "0+", nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    principal_type: str = field(STRING, "0+")
    principal_name: str = field(STRING, "0+")


class DescribedDelegationToken(Struct):
    principal_type: str = field(STRING, "0+")
    principal_name: str = field(STRING, "0+")
    token_requester_principal_type: str = field(STRING, "3+", default="")
    token_requester_principal_name: str = field(STRING, "3+", default="")
    issue_timestamp: int = field(INT64, "0+")
    expiry_timestamp: int = field(INT64, "0+")
    max_timestamp: int = field(INT64, "0+")
    token_id: str = field(STRING, "0+")
    hmac: bytes = field(BYTES, "0+")
    renewers: list[DescribedDelegationTokenRenewer] = field(
        array(DescribedDelegationTokenRenewer), "0+"
    )


class DescribeDelegationTokenResponse(Message, api_key=41, versions="0-3", flexible="2+"):
    error_code: int = field(INT16, "0+")
    tokens: list[DescribedDelegationToken] = field(array(DescribedDelegationToken), "0+")
    throttle_time_ms: int = field(INT32, "0+", default=0)
