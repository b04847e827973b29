"""Resources that have configs or access control lists, with Kafka's numbers.

The numbers are those of requests and of the metadata log (KIP-11, KIP-133, KIP-290, KIP-714,
KIP-1142).
"""

from __future__ import annotations

import enum
from typing import NamedTuple

# The only resource of the type CLUSTER.
CLUSTER_NAME = "kafka-cluster"
# The name of a literal pattern that applies to every resource, and the host for all hosts.
WILDCARD = "*"
# The principal of entries that apply to principals of all types.
WILDCARD_PRINCIPAL = "User:*"


class ResourceType(enum.IntEnum):
    """Types of resources that have configs, with Kafka's numbers."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """A resource that has configs; a broker with an empty name is the default of all brokers."""

    type: ResourceType
    name: str

    @property
    def node_id(self) -> int | None:
        """The id of the broker that must handle the request, None if any broker can."""
        if self.type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) and self.name:
            return int(self.name) if self.name.isdigit() else None
        return None

    def __str__(self) -> str:
        if self.type is ResourceType.BROKER and not self.name:
            return "default of all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


class _Numbers(enum.IntEnum):
    @classmethod
    def _missing_(cls, value: object) -> _Numbers | None:
        """Return UNKNOWN for numbers that a newer broker may have."""
        return cls["UNKNOWN"] if isinstance(value, int) else None


class AclResourceType(_Numbers):
    """Types of protected resources, with Kafka's numbers."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(_Numbers):
    """Types of patterns of resource names; ANY and MATCH are for filters only."""

    UNKNOWN = 0
    ANY = 1
    # All patterns that apply to a resource of this name: literal, wildcard and prefixed.
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class AclOperation(_Numbers):
    """Operations on a resource; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(_Numbers):
    """Whether the operation is allowed or denied; ANY is for filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


# Operations on each type of resource that responses list (KIP-430).
LISTED_OPERATIONS: dict[int, tuple[AclOperation, ...]] = {
    AclResourceType.TOPIC: (
        AclOperation.READ,
        AclOperation.WRITE,
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.GROUP: (
        AclOperation.READ,
        AclOperation.DELETE,
        AclOperation.DESCRIBE,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
    ),
    AclResourceType.CLUSTER: (
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    ),
}
