"""AlterUserScramCredentials: API key 51, version 0, flexible 0+;
served on broker and controller listeners.

Field table imported from Apache Kafka's message schemas by tools/import_schemas.py.
"""

from __future__ import annotations

from barnabas.protocol.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    Message,
    Struct,
    array,
    field,
)


class ScramCredentialDeletion(Struct):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")


class ScramCredentialUpsertion(Struct):
    name: str = field(STRING, "0+")
    mechanism: int = field(INT8, "0+")
    iterations: int = field(INT32, "0+")
    salt: bytes = field(BYTES, "0+")
    salted_password: bytes = field(BYTES, "0+")


class AlterUserScramCredentialsRequest(Message, api_key=51, versions="0", flexible="0+"):
    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion), "0+")
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion), "0+")


class AlterUserScramCredentialsResult(Struct):
    user: str = field(STRING, "0+")
    error_code: int = field(INT16, "0+")
    error_message: str | None = field(STRING, "0+", nullable="0+")


class AlterUserScramCredentialsResponse(Message, api_key=51, versions="0", flexible="0+"):
    throttle_time_ms: int = field(INT32, "0+", default=0)
    results: list[AlterUserScramCredentialsResult] = field(
        array(AlterUserScramCredentialsResult), "0+"
    )
