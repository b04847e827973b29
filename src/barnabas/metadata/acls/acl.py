"""Access control entries of the metadata log (KIP-11, KIP-801), and filters of them.

Filters select entries for DescribeAcls and DeleteAcls (KIP-140, KIP-290).
"""

from __future__ import annotations

from typing import Any

import msgspec

from barnabas.protocol.errors import ProtocolError
from barnabas.protocol.records.security import AccessControlEntryRecord
from barnabas.protocol.resources import (
    WILDCARD,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)

_ALLOW = int(AclPermission.ALLOW)


class Acl(msgspec.Struct, frozen=True):
    """An operation that a principal may or may not do with resources that match a pattern.

    Two equal entries are one entry.

    Numbers are those of `protocol/resources`. A log may contain numbers that are not known.
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


# The number that means unknown. Kafka closes the connection of a client that sends it.
UNKNOWN = 0
_ANY = 1


class AclFilter(msgspec.Struct, frozen=True):
    """Selects the entries that match all given fields; None and ANY match everything."""

    resource_type: int
    resource_name: str | None
    pattern_type: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    @classmethod
    def from_request(cls, data: Any, version: int) -> AclFilter:
        """Return the filter of a DescribeAcls request, or one filter of a DeleteAcls request.

        Raises:
            ProtocolError: a number is 0. Kafka closes the connection then.
        """
        numbers = (
            data.resource_type_filter,
            data.pattern_type_filter,
            data.operation,
            data.permission_type,
        )
        if UNKNOWN in numbers:
            raise ProtocolError("a filter of ACLs with the number 0, which means unknown")
        return cls(
            data.resource_type_filter,
            data.resource_name_filter,
            data.pattern_type_filter if version > 0 else int(PatternType.LITERAL),
            data.principal_filter,
            data.host_filter,
            data.operation,
            data.permission_type,
        )

    @property
    def has_unknown_resource(self) -> bool:
        """Whether the type of resource or of pattern is no known number."""
        return UNKNOWN in (AclResourceType(self.resource_type), PatternType(self.pattern_type))

    @property
    def has_unknown_entry(self) -> bool:
        """Whether the operation or the permission is no known number."""
        return UNKNOWN in (AclOperation(self.operation), AclPermission(self.permission))

    def matches(self, acl: Acl) -> bool:
        """Return whether the filter selects an entry."""
        return (
            self.resource_type in (_ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (_ANY, acl.operation)
            and self.permission in (_ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name, kind = self.resource_name, self.pattern_type
        if kind != PatternType.MATCH:
            return kind in (_ANY, acl.pattern_type) and name in (None, acl.resource_name)
        if name is None:
            return True
        if acl.pattern_type == PatternType.PREFIXED:
            return name.startswith(acl.resource_name)
        return acl.resource_name in (name, WILDCARD)
