"""Plans for ACLs, SCRAM credentials and delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.client.admin import acls, credentials
from barnabas.client.admin.call import checked
from barnabas.client.connections.cluster import ANY_NODE, CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.call import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.errors import BrokerError
    from barnabas.client.retries import OnDone
    from barnabas.protocol.messages.security import ScramCredentialUpsertion

# Randomness of the salts of one call.
_RANDOM_BYTES = 32


def describe_acls(
    sender: AdminSender, wanted: acls.AclFilter | None = None
) -> Plan[list[acls.Acl]]:
    """Describe the entries that match the filter; None means all entries."""
    return sender.send(ANY_NODE, acls.describe_acls(wanted or acls.AclFilter()))


def create_acls(
    sender: AdminSender, entries: Sequence[acls.Acl], *, raise_errors: bool = True
) -> Plan[dict[acls.Acl, BrokerError | None]]:
    """Create access control entries; an existing entry is not an error.

    Returns:
        An error or None for each entry.

    Raises:
        AdminResultsError: an entry was not created; not raised with `raise_errors=False`.
    """
    return checked(sender.send(CONTROLLER, acls.create_acls(entries)), raise_errors=raise_errors)


def delete_acls(
    sender: AdminSender, filters: Sequence[acls.AclFilter], *, raise_errors: bool = True
) -> Plan[dict[acls.AclFilter, acls.DeletedAcls | BrokerError]]:
    """Delete all entries that match one of the filters.

    Returns:
        The deleted entries, or an error, for each filter.

    Raises:
        AdminResultsError: a filter failed; not raised with `raise_errors=False`.
    """
    return checked(sender.send(CONTROLLER, acls.delete_acls(filters)), raise_errors=raise_errors)


def describe_scram_credentials(
    sender: AdminSender, users: Sequence[str] | None = None
) -> Plan[dict[str, list[credentials.ScramCredential] | BrokerError]]:
    """Describe mechanisms and iterations by user; None means all users.

    Returns:
        The credentials, or an error (RESOURCE_NOT_FOUND without any), for each user.
    """
    return sender.send(ANY_NODE, credentials.describe_scram_credentials(users))


def alter_scram_credentials(
    sender: AdminSender,
    upsertions: Sequence[credentials.ScramUpsertion] = (),
    deletions: Sequence[credentials.ScramDeletion] = (),
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
            return [credentials.salted_upsertion(each, random) for each in upsertions]
        except (ValueError, OverflowError) as error:
            # The number of iterations is invalid.
            return error

    def start(on_done: OnDone[Any]) -> None:
        def hashed(found: Any, error: BaseException | None) -> None:
            assert error is None, error
            on_done(found, None)

        # Hashing takes milliseconds for each password.
        runtime.executor.submit(hash_passwords, hashed)

    made = (yield {"hash": start})["hash"]
    if isinstance(made, Exception):
        raise made
    call = credentials.alter_scram_credentials(made, deletions)
    sending: Plan[dict[str, BrokerError | None]] = sender.send(CONTROLLER, call)
    return (yield from checked(sending, raise_errors=raise_errors))


def create_delegation_token(
    sender: AdminSender,
    renewers: Sequence[str] = (),
    *,
    owner: str | None = None,
    max_lifetime_ms: int = -1,
) -> Plan[credentials.DelegationToken]:
    """Create a delegation token.

    Principals are "User:NAME"; without `owner` the caller owns the token. A lifetime of -1 means
    the broker's maximum.
    """
    return sender.send(CONTROLLER, credentials.create_token(owner, renewers, max_lifetime_ms))


def renew_delegation_token(sender: AdminSender, hmac: bytes, period_ms: int = -1) -> Plan[int]:
    """Renew a token for a period in ms, -1 for the broker's default.

    Returns:
        The new expiry time in ms since 1970.
    """
    return sender.send(CONTROLLER, credentials.renew_token(hmac, period_ms))


def expire_delegation_token(sender: AdminSender, hmac: bytes, period_ms: int = -1) -> Plan[int]:
    """Expire a token after a period in ms, immediately for -1.

    Returns:
        The new expiry time in ms since 1970.
    """
    return sender.send(CONTROLLER, credentials.expire_token(hmac, period_ms))


def describe_delegation_tokens(
    sender: AdminSender, owners: Sequence[str] | None = None
) -> Plan[list[credentials.DelegationToken]]:
    """Describe the tokens of these owners; None means all tokens that the caller may see."""
    return sender.send(ANY_NODE, credentials.describe_tokens(owners))
