"""Rights by subject: the access control entries of the cluster for the topic of the same name.

An entry for the prefix `orders` covers the topic `orders` and the subject `orders-value`. What
concerns the whole registry needs rights on the cluster. The entries are those of the brokers, at
most five seconds old.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError
from barnabas.metadata.acl_decision import Action, canonical_address, decide
from barnabas.metadata.acls import Acl, AclsImage
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.resources import CLUSTER_NAME, AclResourceType
from barnabas.registry.errors import forbidden, store_failed
from barnabas.registry.security.access import Right

if TYPE_CHECKING:
    from collections.abc import Sequence

    from barnabas.client.admin.acls import Acl as DescribedAcl
    from barnabas.client.aio.admin import Admin
    from barnabas.registry.security.access import Caller
    from barnabas.runtime.clock import Clock

_MAX_AGE_MS = 5_000.0
_ID_BYTES = 16


class AclAccess:
    """Checks rights by the cluster's entries; implements `Access`.

    Args:
        admin: Reads the entries.
        super_users: Principals that may do everything.
        clock: Tells the age of the entries.
        allows_by_default: Whether a resource without entries is open to everyone.
    """

    def __init__(
        self, admin: Admin, super_users: frozenset[str], clock: Clock, *, allows_by_default: bool
    ) -> None:
        self._admin = admin
        self._super_users = super_users
        self._clock = clock
        self._allows_by_default = allows_by_default
        # The entries; None before they are read, and while the cluster has no authorizer.
        self._acls: AclsImage | None = None
        # Whether the cluster has an authorizer; without one, every principal may do everything.
        self._is_enabled = True
        # When the entries were read (ms, monotonic clock); None before.
        self._read_ms: float | None = None
        self._reading = asyncio.Lock()

    async def check(self, caller: Caller, right: Right, subject: str | None) -> None:
        """Check a right on a subject, or on the whole registry."""
        await self._refresh(caller)
        if not self._allows(caller, right, subject):
            what = "the registry" if subject is None else f"Subject: {subject}"
            raise forbidden(f"{caller.principal} is denied operation {right.name} on {what}")

    async def readable(self, caller: Caller, subjects: Sequence[str]) -> list[str]:
        """Return the subjects that a principal may read."""
        await self._refresh(caller)
        return [each for each in subjects if self._allows(caller, Right.READ, each)]

    def _allows(self, caller: Caller, right: Right, subject: str | None) -> bool:
        if not self._is_enabled or caller.principal in self._super_users:
            return True
        acls = self._acls
        assert acls is not None, "the entries are read before they are needed"
        is_whole = subject is None
        action = Action(
            caller.principal,
            canonical_address(caller.host),
            int(right.value),
            int(AclResourceType.CLUSTER if is_whole else AclResourceType.TOPIC),
            CLUSTER_NAME if subject is None else subject,
        )
        return decide(acls, action).is_allowed(by_default=self._allows_by_default)

    async def _refresh(self, caller: Caller) -> None:
        """Read the entries if they are missing or too old.

        Raises:
            RegistryError: They cannot be read.
        """
        if caller.principal in self._super_users or not self._is_stale:
            return
        async with self._reading:
            if not self._is_stale:
                return
            now_ms = self._clock.monotonic_ms()
            try:
                found = await self._admin.describe_acls()
            except ClientError as error:
                if error.error_code is not ErrorCode.SECURITY_DISABLED:
                    raise store_failed(f"the rights cannot be read: {error}") from None
                self._is_enabled = False
            else:
                self._is_enabled = True
                self._acls = _image(found)
            self._read_ms = now_ms

    @property
    def _is_stale(self) -> bool:
        read_ms = self._read_ms
        return read_ms is None or self._clock.monotonic_ms() - read_ms > _MAX_AGE_MS


def _image(found: Sequence[DescribedAcl]) -> AclsImage:
    """Return the entries in the form in which brokers decide by them."""
    entries: dict[bytes, Acl | None] = {}
    for number, each in enumerate(found):
        entries[number.to_bytes(_ID_BYTES, "big")] = Acl(
            int(each.resource_type),
            each.resource_name,
            int(each.pattern_type),
            each.principal,
            each.host,
            int(each.operation),
            int(each.permission),
        )
    return AclsImage().evolve(entries)
