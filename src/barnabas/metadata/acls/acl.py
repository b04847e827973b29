"""One access control entry of the metadata log (KIP-11, KIP-801)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.protocol.acls import AclPermission
from barnabas.protocol.records.access_control_entry_record import AccessControlEntryRecord

if TYPE_CHECKING:
    from typing import Any

_ALLOW = int(AclPermission.ALLOW)


class Acl(msgspec.Struct, frozen=True):
    """An operation that a principal may or may not do with resources that match a pattern.

    Two equal entries are one entry.

    Numbers are those of `barnabas.protocol.acls`. A log may contain numbers that are not known.
    """

    resource_type: int
    resource_name: str
    pattern_type: int
    # TYPE:NAME, for example "User:app".
    principal: str
    # An IP address, a range of addresses (CIDR), or "*".
    host: str
    operation: int
    permission: int

    @classmethod
    def from_record(cls, record: Any) -> Acl:
        """Return the entry of an AccessControlEntryRecord."""
        return cls(
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )

    def to_record(self, acl_id: bytes) -> AccessControlEntryRecord:
        """Return the record that creates this entry."""
        return AccessControlEntryRecord(
            id=acl_id,
            resource_type=self.resource_type,
            resource_name=self.resource_name,
            pattern_type=self.pattern_type,
            principal=self.principal,
            host=self.host,
            operation=self.operation,
            permission_type=self.permission,
        )

    @property
    def is_allow(self) -> bool:
        """Whether the entry allows its operation; other entries deny it."""
        return self.permission == _ALLOW
