"""SCRAM credentials that the cluster stores, and delegation tokens.

Sources: KIP-554, RFC 5802 (SCRAM); KIP-48, KIP-373 (tokens). Brokers accept calls on tokens only
from authenticated connections, and refuse connections that were authenticated with a token.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from barnabas.client.admin.sender import AdminCall, checked, fixed_call, raise_error
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER
from barnabas.client.errors import error_or_none
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

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.client.errors import BrokerError
    from barnabas.client.retries import OnDone
    from barnabas.protocol.schema import Message

__all__ = [
    "DelegationToken",
    "ScramCredential",
    "ScramDeletion",
    "ScramMechanism",
    "ScramUpsertion",
]

_OWNER_FROM = 3
# Randomness of the salts of one call.
_RANDOM_BYTES = 32


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
    sender: AdminSender, users: Sequence[str] | None = None
) -> Plan[dict[str, list[ScramCredential] | BrokerError]]:
    """Describe mechanisms and iterations by user; None means all users.

    Returns:
        The credentials, or an error (RESOURCE_NOT_FOUND without any), for each user.
    """
    names = None if users is None else [UserName(name=user) for user in users]

    def read(
        response: DescribeUserScramCredentialsResponse,
    ) -> dict[str, list[ScramCredential] | BrokerError]:
        raise_error(response.error_code, "SCRAM credentials", response.error_message)
        return {
            result.user: _scram_error(result)
            or [
                ScramCredential(ScramMechanism(each.mechanism), each.iterations)
                for each in result.credential_infos
            ]
            for result in response.results
        }

    call = fixed_call(DescribeUserScramCredentialsRequest(users=names), read)
    return sender.send(ANY_NODE, call)


def _scram_error(result: Any) -> BrokerError | None:
    subject = f"SCRAM credentials of {result.user}"
    return error_or_none(result.error_code, subject, result.error_message)


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


def alter_scram_credentials(
    sender: AdminSender,
    upsertions: Sequence[ScramUpsertion] = (),
    deletions: Sequence[ScramDeletion] = (),
    *,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Set and delete passwords; only salted hashes are sent to the broker.

    Returns:
        An error or None for each user.

    Raises:
        AdminResultsError: a user failed; not raised with `raise_errors=False`.
    """
    runtime = sender.cluster.runtime
    random = runtime.rng.token(_RANDOM_BYTES)

    def hash_passwords() -> list[ScramCredentialUpsertion] | ValueError | OverflowError:
        try:
            return [salted_upsertion(each, random) for each in upsertions]
        except (ValueError, OverflowError) as error:
            # The number of iterations is invalid.
            return error

    def start(on_done: OnDone[Any]) -> None:
        def on_hashed(found: Any, error: BaseException | None) -> None:
            assert error is None, error
            on_done(found, None)

        # Hashing takes milliseconds for each password.
        runtime.executor.submit(hash_passwords, on_hashed)

    hashed = (yield {"hash": start})["hash"]
    if isinstance(hashed, Exception):
        raise hashed
    request = AlterUserScramCredentialsRequest(
        deletions=[
            ScramCredentialDeletion(name=each.user, mechanism=each.mechanism) for each in deletions
        ],
        upsertions=hashed,
    )

    def read(response: AlterUserScramCredentialsResponse) -> dict[str, BrokerError | None]:
        return {result.user: _scram_error(result) for result in response.results}

    sending = sender.send(CONTROLLER, fixed_call(request, read))
    return (yield from checked(sending, raise_errors=raise_errors))


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


def create_delegation_token(
    sender: AdminSender,
    renewers: Sequence[str] = (),
    *,
    owner: str | None = None,
    max_lifetime_ms: int = -1,
) -> Plan[DelegationToken]:
    """Create a delegation token.

    Principals are "User:NAME"; without `owner` the caller owns the token. A lifetime of -1 means
    the broker's maximum.
    """

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

    def read(response: CreateDelegationTokenResponse) -> DelegationToken:
        raise_error(response.error_code, "delegation token")
        return DelegationToken(
            token_id=response.token_id,
            hmac=bytes(response.hmac),
            owner=f"{response.principal_type}:{response.principal_name}",
            requester=_joined(
                response.token_requester_principal_type, response.token_requester_principal_name
            ),
            renewers=tuple(renewers),
            issue_timestamp=response.issue_timestamp_ms,
            expiry_timestamp=response.expiry_timestamp_ms,
            max_timestamp=response.max_timestamp_ms,
        )

    call = AdminCall(ApiKey.CREATE_DELEGATION_TOKEN, build, read)
    return sender.send(CONTROLLER, call)


def renew_delegation_token(sender: AdminSender, hmac: bytes, period_ms: int = -1) -> Plan[int]:
    """Renew a token for a period in ms, -1 for the broker's default.

    Returns:
        The new expiry time in ms since 1970.
    """
    request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)
    return _change_expiry(sender, request, "renew delegation token")


def expire_delegation_token(sender: AdminSender, hmac: bytes, period_ms: int = -1) -> Plan[int]:
    """Expire a token after a period in ms, immediately for -1.

    Returns:
        The new expiry time in ms since 1970.
    """
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return _change_expiry(sender, request, "expire delegation token")


def _change_expiry(sender: AdminSender, request: Message, subject: str) -> Plan[int]:
    def read(response: ExpireDelegationTokenResponse | RenewDelegationTokenResponse) -> int:
        raise_error(response.error_code, subject)
        return response.expiry_timestamp_ms

    return sender.send(CONTROLLER, fixed_call(request, read))


def describe_delegation_tokens(
    sender: AdminSender, owners: Sequence[str] | None = None
) -> Plan[list[DelegationToken]]:
    """Describe the tokens of these owners; None means all tokens that the caller may see."""
    wanted = None
    if owners is not None:
        wanted = [
            DescribeDelegationTokenOwner(principal_type=kind, principal_name=name)
            for kind, name in map(_split, owners)
        ]

    def read(response: DescribeDelegationTokenResponse) -> list[DelegationToken]:
        raise_error(response.error_code, "delegation tokens")
        return [
            DelegationToken(
                token_id=each.token_id,
                hmac=bytes(each.hmac),
                owner=f"{each.principal_type}:{each.principal_name}",
                requester=_joined(
                    each.token_requester_principal_type, each.token_requester_principal_name
                ),
                renewers=tuple(f"{r.principal_type}:{r.principal_name}" for r in each.renewers),
                issue_timestamp=each.issue_timestamp,
                expiry_timestamp=each.expiry_timestamp,
                max_timestamp=each.max_timestamp,
            )
            for each in response.tokens
        ]

    return sender.send(ANY_NODE, fixed_call(DescribeDelegationTokenRequest(owners=wanted), read))


def _split(principal: str) -> tuple[str, str]:
    kind, colon, name = principal.partition(":")
    if not colon or not kind:
        raise ValueError(f"{principal} is not a principal: write User:NAME")
    return kind, name


def _joined(kind: str, name: str) -> str:
    return f"{kind}:{name}" if kind else ""
