"""The configuration of dead-letter topics, read anew for every write (KIP-1191)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.configs.kind_configs import (
    DEAD_LETTER_AUTO_CREATE,
    DEAD_LETTER_PREFIX,
)
from barnabas.metadata.configs_image import GROUP, TOPIC
from barnabas.metadata.group_configs import COPY_DEAD_LETTERS, DEAD_LETTER_TOPIC

if TYPE_CHECKING:
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig

# Config of a topic that allows share groups to use it as their dead-letter topic.
ENABLED = "errors.deadletterqueue.group.enable"
_MAX_BYTES = "max.message.bytes"
_INTERNAL_PREFIX = "__"


class DeadLetterSettings:
    """Looks up the configs of groups, topics and the broker."""

    __slots__ = ("_cluster", "_dynamic")

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
