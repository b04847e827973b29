"""The controller's configuration, with Kafka's keys and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.range import at_least

if TYPE_CHECKING:
    from barnabas.settings.definition import ParsedConfig

CONTROLLER_CONFIGS = ConfigDefinition([
    ConfigKey(
        "num.partitions",
        ConfigType.INT,
        1,
        "Partitions of a topic that is created without saying how many.",
        at_least(1),
    ),
    ConfigKey(
        "default.replication.factor",
        ConfigType.INT,
        1,
        "Replicas per partition of a topic that is created without saying how many.",
        at_least(1),
    ),
    ConfigKey(
        "delete.topic.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether topics may be deleted.",
    ),
    ConfigKey(
        "broker.session.timeout.ms",
        ConfigType.INT,
        9000,
        "How long a broker stays in the cluster without a heartbeat.",
        at_least(1),
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        ConfigType.INT,
        2000,
        "How often a broker sends a heartbeat.",
        at_least(1),
    ),
])  # fmt: skip


class ControllerConfig(msgspec.Struct, frozen=True):
    """What a controller is told at its start; times in ms."""

    node_id: int
    cluster_id: str
    # All keys of the broker: defaults of topics come from here, and which keys may change.
    broker: ParsedConfig

    @property
    def num_partitions(self) -> int:
        """Partitions of a topic that does not say."""
        return self.broker.integer("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        """Replicas of a topic that does not say."""
        return self.broker.integer("default.replication.factor")

    @property
    def delete_topic_enable(self) -> bool:
        """Whether topics may be deleted."""
        return self.broker.boolean("delete.topic.enable")

    @property
    def broker_session_timeout_ms(self) -> int:
        """How long a broker may be silent."""
        return self.broker.integer("broker.session.timeout.ms")
