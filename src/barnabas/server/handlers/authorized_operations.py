"""Bit fields of authorized operations (KIP-430). Without an authorizer, all are allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.resources import (
    CLUSTER_NAME,
    LISTED_OPERATIONS,
    AclOperation,
    AclResourceType,
)

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Access

# Value in a response if the client did not request the operations.
NOT_REQUESTED = -(1 << 31)

_CLUSTER = int(AclResourceType.CLUSTER)


def _bits(resource_type: AclResourceType) -> int:
    return sum(1 << operation for operation in LISTED_OPERATIONS[resource_type])


TOPIC_OPERATIONS = _bits(AclResourceType.TOPIC)
GROUP_OPERATIONS = _bits(AclResourceType.GROUP)
CLUSTER_OPERATIONS = _bits(AclResourceType.CLUSTER)


def cluster_operations(access: Access | None) -> int:
    """Return the operations that the client may do on the cluster; 0 if it may not describe it."""
    if access is None:
        return CLUSTER_OPERATIONS
    if not access.allows(int(AclOperation.DESCRIBE), _CLUSTER, CLUSTER_NAME):
        return 0
    return access.operations(_CLUSTER, CLUSTER_NAME)
