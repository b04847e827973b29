"""SCRAM credentials that the cluster stores (KIP-554, RFC 5802)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from barnabas.sasl.scram_keys import (
    ITERATIONS_DEFAULT,
    ScramMechanism,
    printable_salt,
    salted_password,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.protocol.schema import Message

__all__ = [
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
    "alter_scram_credentials",
    "describe_scram_credentials",
    "salted_upsertion",
]


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """A credential as the cluster describes it, without secrets."""

    mechanism: ScramMechanism
    iterations: int


@dataclass(frozen=True, slots=True)
class ScramUpsertion:
    """Sets the password of a user; only its salted hash is sent to the broker."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = ITERATIONS_DEFAULT
    # None for a random salt.
    salt: bytes | None = None


@dataclass(frozen=True, slots=True)
class ScramDeletion:
    """Deletes the credential of a user for one mechanism."""

    user: str
    mechanism: ScramMechanism


def describe_scram_credentials(
    users: Sequence[str] | None,
) -> AdminCall[dict[str, list[ScramCredential] | BrokerError]]:
    """Describe credentials by user; None means all users. Others get RESOURCE_NOT_FOUND."""

    def build(_version: int) -> Message:
        names = None if users is None else [UserName(name=user) for user in users]
        return DescribeUserScramCredentialsRequest(users=names)

    def read(response: Message) -> dict[str, list[ScramCredential] | BrokerError]:
        assert isinstance(response, DescribeUserScramCredentialsResponse)
        raise_error(response.error_code, "SCRAM credentials", response.error_message)
        found: dict[str, list[ScramCredential] | BrokerError] = {}
        for result in response.results:
            if result.error_code:
                subject = f"SCRAM credentials of {result.user}"
                found[result.user] = broker_error(result.error_code, subject, result.error_message)
            else:
                found[result.user] = [
                    ScramCredential(ScramMechanism(each.mechanism), each.iterations)
                    for each in result.credential_infos
                ]
        return found

    return AdminCall(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, build, read)


def alter_scram_credentials(
    upsertions: Sequence[ScramCredentialUpsertion], deletions: Sequence[ScramDeletion]
) -> AdminCall[dict[str, BrokerError | None]]:
    """Set and delete credentials; return an error or None for each user.

    Args:
        upsertions: the credentials to set, from `salted_upsertion`.
        deletions: the credentials to delete.
    """

    def build(_version: int) -> Message:
        return AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name=each.user, mechanism=each.mechanism)
                for each in deletions
            ],
            upsertions=list(upsertions),
        )

    def read(response: Message) -> dict[str, BrokerError | None]:
        assert isinstance(response, AlterUserScramCredentialsResponse)
        found: dict[str, BrokerError | None] = {}
        for result in response.results:
            code = result.error_code
            subject = f"SCRAM credentials of {result.user}"
            found[result.user] = broker_error(code, subject, result.error_message) if code else None
        return found

    return AdminCall(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, build, read)


def salted_upsertion(given: ScramUpsertion, random: bytes) -> ScramCredentialUpsertion:
    """Return the keys that are sent instead of a password. This takes milliseconds.

    Args:
        given: user and password.
        random: random bytes, from which a salt is derived if the upsertion has none.
    """
    salt = given.salt
    if salt is None:
        mixed = hashlib.sha256(random + given.mechanism.to_bytes() + given.user.encode()).digest()
        salt = printable_salt(mixed)
    return ScramCredentialUpsertion(
        name=given.user,
        mechanism=given.mechanism,
        iterations=given.iterations,
        salt=salt,
        salted_password=salted_password(given.mechanism, given.password, salt, given.iterations),
    )
