"""The controller's configuration, with Kafka's keys and defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.metadata.credentials import SECRET_KEY
from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType
from barnabas.settings.key import at_least

if TYPE_CHECKING:
    from barnabas.settings.definition import ParsedConfig

CREATE_TOPIC_POLICY = "create.topic.policy.class.name"
ALTER_CONFIG_POLICY = "alter.config.policy.class.name"

CONTROLLER_CONFIGS = ConfigDefinition([
    ConfigKey(
        "num.partitions",
        ConfigType.INT,
        1,
        "The number of partitions of a topic that is created without a number.",
        at_least(1),
    ),
    ConfigKey(
        "default.replication.factor",
        ConfigType.INT,
        1,
        "The number of replicas of a topic that is created without a number.",
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
        "A broker without a heartbeat for this time is fenced.",
        at_least(1),
    ),
    ConfigKey(
        "broker.heartbeat.interval.ms",
        ConfigType.INT,
        2000,
        "How often a broker sends a heartbeat.",
        at_least(1),
    ),
    ConfigKey(
        "auto.leader.rebalance.enable",
        ConfigType.BOOLEAN,
        True,
        "Whether the controller elects preferred leaders periodically.",
    ),
    ConfigKey(
        "leader.imbalance.check.interval.seconds",
        ConfigType.LONG,
        300,
        "The interval between elections of preferred leaders.",
        at_least(1),
    ),
    ConfigKey(
        "unclean.leader.election.interval.ms",
        ConfigType.LONG,
        300_000,
        "The interval between unclean elections for partitions without a leader whose topic"
        " allows them.",
        at_least(1),
    ),
    ConfigKey(
        "metadata.max.idle.interval.ms",
        ConfigType.INT,
        500,
        "After this idle time the controller appends an empty record to the metadata log; 0:"
        " never.",
        at_least(0),
    ),
    ConfigKey(
        CREATE_TOPIC_POLICY,
        ConfigType.CLASS,
        None,
        "A Python class that decides which topics may be created: package.module:Class, see"
        " docs/security.md.",
    ),
    ConfigKey(
        ALTER_CONFIG_POLICY,
        ConfigType.CLASS,
        None,
        "A Python class that decides which configs may be changed: package.module:Class, see"
        " docs/security.md.",
    ),
    ConfigKey(
        SECRET_KEY,
        ConfigType.PASSWORD,
        None,
        "The secret key of delegation tokens, the same on all nodes. Without it, tokens are"
        " switched off.",
    ),
    ConfigKey(
        "delegation.token.max.lifetime.ms",
        ConfigType.LONG,
        604_800_000,
        "A delegation token cannot be renewed beyond this time after its creation.",
        at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.time.ms",
        ConfigType.LONG,
        86_400_000,
        "A delegation token expires after this time, unless it is renewed.",
        at_least(1),
    ),
    ConfigKey(
        "delegation.token.expiry.check.interval.ms",
        ConfigType.LONG,
        3_600_000,
        "The interval between removals of expired delegation tokens.",
        at_least(1),
    ),
])  # fmt: skip


class ControllerConfig(msgspec.Struct, frozen=True):
    """The configuration of a controller; times in ms."""

    node_id: int
    cluster_id: str
    # All broker keys: the source of topic defaults, and of which keys may change dynamically.
    broker: ParsedConfig
    # Whether this node has an authorizer. Without one, requests for ACLs are refused.
    has_authorizer: bool = False

    @property
    def token_secret_key(self) -> str:
        """Secret key of delegation tokens; empty if tokens are switched off."""
        return self.broker.optional_string(SECRET_KEY) or ""
