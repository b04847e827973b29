"""SCRAM credentials that the cluster stores, and delegation tokens.

Sources: KIP-554, RFC 5802 (SCRAM); KIP-48, KIP-373 (tokens). Brokers accept calls on tokens only
from authenticated connections, and refuse connections that were authenticated with a token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import BrokerError, broker_error
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.messages.security import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
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
    "DelegationToken",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
]

_OWNER_FROM = 3


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


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token; principals are "User:NAME", times are in ms since 1970."""

    token_id: str
    hmac: bytes
    owner: str
    # Principal that created the token; empty if the broker does not send it.
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    # The token cannot be renewed beyond this time.
    max_timestamp: int


def create_token(
    owner: str | None, renewers: Sequence[str], max_lifetime_ms: int
) -> AdminCall[DelegationToken]:
    """Create a token; `max_lifetime_ms` of -1 means the broker's maximum."""

    def build(version: int) -> Message:
        request = CreateDelegationTokenRequest(
            renewers=[
                CreatableRenewers(principal_type=kind, principal_name=name)
                for kind, name in map(_split, renewers)
            ],
            max_lifetime_ms=max_lifetime_ms,
        )
        if version >= _OWNER_FROM:
            kind, name = _split(owner) if owner is not None else (None, None)
            request.owner_principal_type, request.owner_principal_name = kind, name
        elif owner is not None:
            raise ProtocolError("brokers before 3.3 cannot create tokens for other principals")
        return request

    def read(response: Message) -> DelegationToken:
        assert isinstance(response, CreateDelegationTokenResponse)
        raise_error(response.error_code, "delegation token")
        return DelegationToken(
            response.token_id,
            bytes(response.hmac),
            f"{response.principal_type}:{response.principal_name}",
            _joined(
                response.token_requester_principal_type, response.token_requester_principal_name
            ),
            tuple(renewers),
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
        )

    return AdminCall(ApiKey.CREATE_DELEGATION_TOKEN, build, read)


def renew_token(hmac: bytes, period_ms: int) -> AdminCall[int]:
    """Renew a token for a period in ms, -1 for the broker's default; return its expiry in ms."""

    def build(_version: int) -> Message:
        return RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)

    def read(response: Message) -> int:
        assert isinstance(response, RenewDelegationTokenResponse)
        raise_error(response.error_code, "renew delegation token")
        return response.expiry_timestamp_ms

    return AdminCall(ApiKey.RENEW_DELEGATION_TOKEN, build, read)


def expire_token(hmac: bytes, period_ms: int) -> AdminCall[int]:
    """Expire a token after a period in ms, immediately for -1; return its expiry in ms."""

    def build(_version: int) -> Message:
        return ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)

    def read(response: Message) -> int:
        assert isinstance(response, ExpireDelegationTokenResponse)
        raise_error(response.error_code, "expire delegation token")
        return response.expiry_timestamp_ms

    return AdminCall(ApiKey.EXPIRE_DELEGATION_TOKEN, build, read)


def describe_tokens(owners: Sequence[str] | None) -> AdminCall[list[DelegationToken]]:
    """Describe the tokens of these owners; None means all tokens that the caller may see."""

    def build(_version: int) -> Message:
        wanted = None
        if owners is not None:
            wanted = [
                DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
                for kind, name in map(_split, owners)
            ]
        return DescribeDelegationTokenRequest(owners=wanted)

    def read(response: Message) -> list[DelegationToken]:
        assert isinstance(response, DescribeDelegationTokenResponse)
        raise_error(response.error_code, "delegation tokens")
        return [
            DelegationToken(
                each.token_id,
                bytes(each.hmac),
                f"{each.principal_type}:{each.principal_name}",
                _joined(each.token_requester_principal_type, each.token_requester_principal_name),
                tuple(f"{r.principal_type}:{r.principal_name}" for r in each.renewers),
                each.issue_timestamp,
                each.expiry_timestamp,
                each.max_timestamp,
            )
            for each in response.tokens
        ]

    return AdminCall(ApiKey.DESCRIBE_DELEGATION_TOKEN, build, read)


def _split(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not colon or not kind:
        raise ValueError(f"{principal} is not a principal: write User:NAME")
    return kind, name


def _joined(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""
