"""Current configuration of share groups and of their dead-letter topics (KIP-932, KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.kind_configs import DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_PREFIX
from barnabas.metadata.configs_image import GROUP, TOPIC
from barnabas.metadata.group_configs import (
    COPY_DEAD_LETTERS,
    DEAD_LETTER_TOPIC,
    GROUP_CONFIGS,
    ShareOffsetReset,
)
from barnabas.storage.results import FetchIsolation

if TYPE_CHECKING:
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic_config import DynamicBrokerConfig
    from barnabas.settings.definition import ParsedConfig


class ShareLimits(msgspec.Struct, frozen=True):
    """The configuration of a group that applies to an operation."""

    # How often a record is delivered: group.share.delivery.count.limit.
    delivery_count_limit: int
    # Records in flight: group.share.partition.max.record.locks.
    record_locks_max: int
    # Time of an acquisition lock: group.share.record.lock.duration.ms.
    lock_duration_ms: int
    # Whether members may renew locks: share.renew.acknowledge.enable (KIP-1222).
    can_renew: bool = True
    # Whether the group has a dead-letter topic and share.version is 2 (KIP-1191).
    has_dead_letters: bool = False


_DELIVERIES = "share.delivery.count.limit"
_LOCKS = "share.partition.max.record.locks"
_DURATION = "share.record.lock.duration.ms"
_RENEW = "share.renew.acknowledge.enable"
_ISOLATION = "share.isolation.level"
_RESET = "share.auto.offset.reset"


class ShareGroupSettings:
    """Looks up the current configuration of a group."""

    def __init__(self, config: ParsedConfig, cluster: ClusterView) -> None:
        self._cluster = cluster
        # Values of groups without configs.
        self._defaults = ShareLimits(
            config.integer(f"group.{_DELIVERIES}"),
            config.integer(f"group.{_LOCKS}"),
            config.integer(f"group.{_DURATION}"),
        )

    def limits(self, group_id: str) -> ShareLimits:
        """Return the limits of a group."""
        configs = self._cluster.image.configs.get(GROUP, group_id)
        if not configs:
            return self._defaults
        defaults = self._defaults
        return ShareLimits(
            int(configs.get(_DELIVERIES, defaults.delivery_count_limit)),
            int(configs.get(_LOCKS, defaults.record_locks_max)),
            int(configs.get(_DURATION, defaults.lock_duration_ms)),
            configs.get(_RENEW, "true").lower() == "true",
            bool(configs.get(DEAD_LETTER_TOPIC)) and self._cluster.image.features.has_dead_letters,
        )

    def isolation(self, group_id: str) -> FetchIsolation:
        """Return up to which offset the group reads."""
        if self._text(group_id, _ISOLATION) == "read_committed":
            return FetchIsolation.TXN_COMMITTED
        return FetchIsolation.HIGH_WATERMARK

    def offset_reset(self, group_id: str) -> ShareOffsetReset:
        """Return where the group begins to read a partition."""
        return ShareOffsetReset.parse(self._text(group_id, _RESET))

    def _text(self, group_id: str, key: str) -> str:
        configs = self._cluster.image.configs.get(GROUP, group_id)
        return configs.get(key, str(GROUP_CONFIGS.key(key).default))


# Config of a topic that allows share groups to use it as their dead-letter topic.
ENABLED = "errors.deadletterqueue.group.enable"
_MAX_BYTES = "max.message.bytes"
_INTERNAL_PREFIX = "__"


class DeadLetterSettings:
    """Looks up the configs of groups, topics and the broker."""

    def __init__(self, dynamic: DynamicBrokerConfig, cluster: ClusterView) -> None:
        self._dynamic = dynamic
        self._cluster = cluster

    def topic(self, group_id: str) -> str:
        """Return the dead-letter topic of a group; empty without one."""
        return self._cluster.image.configs.get(GROUP, group_id).get(DEAD_LETTER_TOPIC, "")

    def copies_records(self, group_id: str) -> bool:
        """Whether the dead-letter records of a group get the keys and values."""
        configs = self._cluster.image.configs.get(GROUP, group_id)
        return configs.get(COPY_DEAD_LETTERS, "false").lower() == "true"

    def exists(self, topic: str) -> bool:
        """Whether the topic is in the metadata."""
        return self._cluster.image.topics.by_name(topic) is not None

    def max_bytes(self, topic: str) -> int:
        """Return the size of the largest batch that the topic accepts."""
        value = self._cluster.image.configs.get(TOPIC, topic).get(_MAX_BYTES)
        if value is not None:
            return int(value)
        return self._dynamic.current.integer("message.max.bytes")

    def problem(self, group_id: str) -> str | None:
        """Return why the group's dead-letter topic cannot be used; None if it can."""
        topic = self.topic(group_id)
        if not topic:
            return "the group has no dead-letter topic"
        if topic.startswith(_INTERNAL_PREFIX):
            return f"the name of the dead-letter topic begins with {_INTERNAL_PREFIX}"
        config = self._dynamic.current
        if self.exists(topic):
            enabled = self._cluster.image.configs.get(TOPIC, topic).get(ENABLED, "false")
            if enabled.lower() != "true":
                return f"the topic has not the config {ENABLED}=true"
        elif not config.boolean(DEAD_LETTER_AUTO_CREATE):
            return f"the topic does not exist and {DEAD_LETTER_AUTO_CREATE} is false"
        prefix = config.text(DEAD_LETTER_PREFIX) or ""
        if not topic.startswith(prefix):
            return f"the name of the topic does not begin with {prefix} ({DEAD_LETTER_PREFIX})"
        return None
