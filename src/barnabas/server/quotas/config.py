"""Configuration keys of client and connection quotas (Kafka: QuotaConfig, SocketServerConfigs).

The limits of users, client ids and addresses are in the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType, DynamicMode
from barnabas.settings.key import at_least, satisfying, whole_number

if TYPE_CHECKING:
    from barnabas.settings.key import ConfigValue

INT_MAX = 0x7FFF_FFFF


def parse_overrides(text: str) -> dict[str, int] | None:
    """Parse "ADDRESS:COUNT,..." into limits by address, and return None for invalid text."""
    overrides: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        address, colon, count = item.rpartition(":")
        limit = whole_number(count) if count.isdigit() else None
        if not colon or not address or limit is None:
            return None
        overrides[address.strip("[]")] = limit
    return overrides


def _are_overrides(value: ConfigValue) -> bool:
    return isinstance(value, str) and parse_overrides(value) is not None


QUOTA_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "quota.window.num",
            ConfigType.INT,
            11,
            "The number of windows over which rates of client quotas are measured.",
            at_least(1),
        ),
        ConfigKey(
            "quota.window.size.seconds",
            ConfigType.INT,
            1,
            "The length of one window of client quotas.",
            at_least(1),
        ),
        ConfigKey(
            "controller.quota.window.num",
            ConfigType.INT,
            11,
            "The largest burst of controller mutations, in windows.",
            at_least(1),
        ),
        ConfigKey(
            "controller.quota.window.size.seconds",
            ConfigType.INT,
            1,
            "The length of one window of the controller mutation quota.",
            at_least(1),
        ),
    ]
)

# `max.connections` and `max.connection.creation.rate` may also be set for one listener, as
# `listener.name.NAME.max.connections`.
CONNECTION_KEYS = ConfigDefinition(
    [
        ConfigKey(
            "max.connections",
            ConfigType.INT,
            INT_MAX,
            "The largest number of connections; further ones wait. With several listeners, the"
            " listener of the brokers is exempt.",
            at_least(1),
            DynamicMode.CLUSTER_WIDE,
        ),
        ConfigKey(
            "max.connections.per.ip",
            ConfigType.INT,
            INT_MAX,
            "The largest number of connections from one address; further ones are closed.",
            at_least(0),
            DynamicMode.CLUSTER_WIDE,
        ),
        ConfigKey(
            "max.connections.per.ip.overrides",
            ConfigType.STRING,
            "",
            "Other limits for single addresses, ADDRESS:COUNT each, with commas between them.",
            satisfying("ADDRESS:COUNT,...", _are_overrides),
            DynamicMode.CLUSTER_WIDE,
        ),
        ConfigKey(
            "max.connection.creation.rate",
            ConfigType.INT,
            INT_MAX,
            "The largest number of new connections per second; further ones wait.",
            at_least(1),
            DynamicMode.CLUSTER_WIDE,
        ),
    ]
)
LISTENER_OVERRIDABLE = ("max.connections", "max.connection.creation.rate")
