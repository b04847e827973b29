"""Broker configuration of groups: keys of the broker, and the configs of single groups.

Kafka: GroupCoordinatorConfig, GroupConfig. It declares only the keys that Barnabas implements.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.coordinator.group.kind_configs import (
    ASSIGNOR_KEYS,
    CONSUMER_KEYS,
    SHARE_KEYS,
    STREAMS_KEYS,
)
from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import at_least, between, satisfying

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig


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


_INT_MAX = 0x7FFF_FFFF

DEFINITION = ConfigDefinition(
    [
        ConfigKey(
            "group.min.session.timeout.ms",
            ConfigType.INT,
            6_000,
            "Shortest session timeout that a member of a classic group may request, in ms.",
        ),
        ConfigKey(
            "group.max.session.timeout.ms",
            ConfigType.INT,
            1_800_000,
            "Longest session timeout that a member of a classic group may request, in ms.",
        ),
        ConfigKey(
            "group.initial.rebalance.delay.ms",
            ConfigType.INT,
            3_000,
            "How long the first rebalance of an empty classic group waits for more members, in ms.",
        ),
        ConfigKey(
            "group.max.size",
            ConfigType.INT,
            _INT_MAX,
            "Maximum number of members of a classic group.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.num.partitions",
            ConfigType.INT,
            50,
            "Number of partitions of __consumer_offsets. It must not change once the topic exists.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.replication.factor",
            ConfigType.SHORT,
            3,
            "Number of replicas of __consumer_offsets. Its creation waits for that many brokers.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.segment.bytes",
            ConfigType.INT,
            104_857_600,
            "Segment size of __consumer_offsets, in bytes. Smaller segments are compacted sooner.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.topic.compression.codec",
            ConfigType.INT,
            0,
            "Compression of __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
            between(0, 4),
        ),
        ConfigKey(
            "offsets.retention.minutes",
            ConfigType.INT,
            7 * 24 * 60,
            "How long committed offsets are kept, in minutes. The time starts when the group "
            "becomes empty or no longer subscribes to the topic. For groups that never had "
            "members, it starts with the commit.",
            at_least(1),
        ),
        ConfigKey(
            "offsets.retention.check.interval.ms",
            ConfigType.LONG,
            600_000,
            "Interval of the removal of expired offsets and of empty groups, in ms.",
            at_least(1),
        ),
        ConfigKey(
            "offset.metadata.max.bytes",
            ConfigType.INT,
            4096,
            "Maximum length of the metadata of a committed offset.",
        ),
        ConfigKey(
            "offsets.commit.timeout.ms",
            ConfigType.INT,
            5_000,
            "How long a write to __consumer_offsets may wait for its replicas, in ms.",
            at_least(1),
        ),
        *CONSUMER_KEYS,
        *ASSIGNOR_KEYS,
        *SHARE_KEYS,
        *STREAMS_KEYS,
        ConfigKey(
            "group.consumer.migration.policy",
            ConfigType.STRING,
            "bidirectional",
            "Whether groups with members change between the classic and the consumer protocol: "
            "upgrade (to the consumer protocol when its first member joins), downgrade (to the "
            "classic protocol when the last member of the consumer protocol leaves), bidirectional "
            "or disabled. Groups without members always change.",
            satisfying("one of disabled, downgrade, upgrade, bidirectional", is_policy),
        ),
    ]
)


class GroupCoordinatorConfig(msgspec.Struct, frozen=True):
    """Values of the configuration keys above. Times are in ms unless the name says otherwise."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = _INT_MAX
    offsets_topic_compression_codec: int = 0
    offsets_retention_minutes: int = 7 * 24 * 60
    offsets_retention_check_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4096
    offsets_commit_timeout_ms: int = 5_000
    group_consumer_migration_policy: str = MigrationPolicy.BIDIRECTIONAL.value

    @property
    def migration_policy(self) -> MigrationPolicy:
        """group.consumer.migration.policy."""
        return MigrationPolicy(self.group_consumer_migration_policy.lower())

    @property
    def offsets_retention_ms(self) -> int:
        """offsets.retention.minutes in ms."""
        return self.offsets_retention_minutes * 60_000


@cache
def _limits_of(name: str) -> tuple[str, str]:
    """Return the keys of the lowest and the highest value of a group's config."""
    kind, _, rest = name.partition(".")
    # The limit of `num.standby.replicas` is `max.standby.replicas`.
    limited = rest.removeprefix("num.")
    return f"group.{kind}.min.{limited}", f"group.{kind}.max.{limited}"


# The configs of a group without own configs.
NO_OVERRIDES: Mapping[str, str] = MappingProxyType({})


class GroupSettings(msgspec.Struct):
    """The configuration of consumer, share and streams groups."""

    # The broker replaces it when a dynamic key changes.
    config: ParsedConfig = msgspec.field(default_factory=lambda: DEFINITION.parse({}))
    # Configs of single groups by group id. They override the broker's. The broker replaces them
    # with each metadata image.
    overrides: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)

    def value(self, group_id: str, name: str) -> int:
        """Return a number of a group's config. The broker's limits apply to the group's value.

        Args:
            group_id: the group.
            name: the name of the config, such as `share.session.timeout.ms`.
        """
        own = self.overrides.get(group_id, NO_OVERRIDES).get(name)
        if own is None:
            return self.config.integer("group." + name)
        broker: dict[str, Any] = self.config.values
        lowest_key, highest_key = _limits_of(name)
        value = int(own)
        lowest: int = broker.get(lowest_key, value)
        value = max(value, lowest)
        highest: int = broker.get(highest_key, value)
        return min(value, highest)
