"""Which conversions `group.consumer.migration.policy` allows (ConsumerGroupMigrationPolicy)."""

from __future__ import annotations

from enum import Enum


class MigrationPolicy(Enum):
    """The policy for groups with members. Empty groups change with any policy."""

    DISABLED = "disabled"
    # From the classic to the consumer protocol.
    UPGRADE = "upgrade"
    # From the consumer to the classic protocol.
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """Whether a classic group becomes a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """Whether a consumer group becomes a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


def is_policy(value: object) -> bool:
    """Whether a text names a policy. Upper and lower case are equal, as in Kafka."""
    return isinstance(value, str) and value.lower() in {each.value for each in MigrationPolicy}
