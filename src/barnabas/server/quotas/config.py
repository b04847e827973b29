"""Configuration keys of client and connection quotas (Kafka: QuotaConfig, SocketServerConfigs).

The limits of users, client ids and addresses are in the metadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.settings.definition import ConfigDefinition, ConfigKey, ConfigType, DynamicMode
from barnabas.settings.key import whole_number
from barnabas.settings.range import at_least, satisfying

if TYPE_CHECKING:
    from barnabas.settings.range import ConfigValue

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
            "How many windows the rates of client quotas are measured over.",
            at_least(1),
        ),
        ConfigKey(
            "quota.window.size.seconds",
            ConfigType.INT,
            1,
            "How long one window of client quotas is.",
            at_least(1),
        ),
        ConfigKey(
            "controller.quota.window.num",
            ConfigType.INT,
            11,
            "How many windows' worth of controller mutations may come at once.",
            at_least(1),
        ),
        ConfigKey(
            "controller.quota.window.size.seconds",
            ConfigType.INT,
            1,
            "How long one window of the controller mutation quota is.",
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
            "How many connections are open at most; further ones wait. With several listeners the"
            " brokers' own is not held back.",
            at_least(1),
            DynamicMode.CLUSTER_WIDE,
        ),
        ConfigKey(
            "max.connections.per.ip",
            ConfigType.INT,
            INT_MAX,
            "How many connections one address has open at most; further ones are closed.",
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
            "How many connections are made per second at most; further ones wait.",
            at_least(1),
            DynamicMode.CLUSTER_WIDE,
        ),
    ]
)
LISTENER_OVERRIDABLE = ("max.connections", "max.connection.creation.rate")
