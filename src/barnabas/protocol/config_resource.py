"""Resources that have configs: topics, brokers, groups and others (KIP-133, KIP-714, KIP-1142)."""

from __future__ import annotations

import enum
from typing import NamedTuple


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
