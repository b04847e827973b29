"""ACLs, SCRAM credentials, delegation tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.client.admin import acls, scram, tokens
from barnabas.client.admin.results import checked
from barnabas.client.cluster import ANY_NODE, CONTROLLER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.plan import Plan
    from barnabas.client.admin.sender import AdminSender
    from barnabas.client.errors import BrokerError


def describe_acls(
    sender: AdminSender, wanted: acls.AclFilter | None = None
) -> Plan[list[acls.Acl]]:
    """All entries that match the filter, or all."""
    return sender.send(ANY_NODE, acls.describe_acls(wanted or acls.AclFilter()))


def create_acls(
    sender: AdminSender, entries: Sequence[acls.Acl], *, raise_errors: bool = True
) -> Plan[dict[acls.Acl, BrokerError | None]]:
    """Create entries; an error or None for each. Those that are there already are no error."""
    return checked(sender.send(CONTROLLER, acls.create_acls(entries)), raise_errors=raise_errors)


def delete_acls(
    sender: AdminSender, filters: Sequence[acls.AclFilter], *, raise_errors: bool = True
) -> Plan[dict[acls.AclFilter, acls.DeletedAcls | BrokerError]]:
    """Delete all entries that match one of the filters; for each what it deleted, or an error."""
    return checked(sender.send(CONTROLLER, acls.delete_acls(filters)), raise_errors=raise_errors)


def describe_scram_credentials(
    sender: AdminSender, users: Sequence[str] | None = None
) -> Plan[dict[str, list[scram.ScramCredential] | BrokerError]]:
    """Mechanisms and iterations by user, of all users if none are named."""
    return sender.send(ANY_NODE, scram.describe_scram_credentials(users))


def alter_scram_credentials(
    sender: AdminSender,
    upsertions: Sequence[scram.ScramUpsertion] = (),
    deletions: Sequence[scram.ScramDeletion] = (),
    *,
    raise_errors: bool = True,
) -> Plan[dict[str, BrokerError | None]]:
    """Set and delete passwords; an error or None for each user."""
    salt = sender.cluster.runtime.rng.uuid() + sender.cluster.runtime.rng.uuid()
    call = scram.alter_scram_credentials(upsertions, deletions, salt)
    return checked(sender.send(CONTROLLER, call), raise_errors=raise_errors)


def create_delegation_token(
    sender: AdminSender,
    renewers: Sequence[str] = (),
    *,
    owner: str | None = None,
    max_lifetime_ms: int = -1,
) -> Plan[tokens.DelegationToken]:
    """Make a token; principals are "User:NAME", the owner is who asks if none is given."""
    return sender.send(CONTROLLER, tokens.create_token(owner, renewers, max_lifetime_ms))


def renew_delegation_token(sender: AdminSender, hmac: bytes, period_ms: int = -1) -> Plan[int]:
    """Prolong a token, by the broker's period for -1; the result is when it ends, in ms."""
    return sender.send(CONTROLLER, tokens.renew_token(hmac, period_ms))


def expire_delegation_token(sender: AdminSender, hmac: bytes, period_ms: int = -1) -> Plan[int]:
    """End a token after a period, at once for -1; the result is when it ends, in ms."""
    return sender.send(CONTROLLER, tokens.expire_token(hmac, period_ms))


def describe_delegation_tokens(
    sender: AdminSender, owners: Sequence[str] | None = None
) -> Plan[list[tokens.DelegationToken]]:
    """Tokens of these owners, all that one may see if none are named."""
    return sender.send(ANY_NODE, tokens.describe_tokens(owners))
