"""Configuration keys of client and connection quotas (Kafka: QuotaConfig, SocketServerConfigs).

The limits of users, client ids and addresses are in the metadata. The limits for the number and
rate of connections are in the configuration of the broker and of its listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.settings.definition import (
    ConfigDefinition,
    ConfigError,
    ConfigKey,
    ConfigType,
    DynamicMode,
)
from barnabas.settings.key import at_least, satisfying, whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig
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


class ListenerBounds(msgspec.Struct, frozen=True):
    """Limits of the connections of one listener."""

    connections: int = INT_MAX
    rate: int = INT_MAX


class ConnectionBounds(msgspec.Struct, frozen=True):
    """Limits of all connections, of single addresses, and of single listeners."""

    connections: int = INT_MAX
    rate: int = INT_MAX
    per_address: int = INT_MAX
    by_address: Mapping[str, int] = msgspec.field(default_factory=dict)
    by_listener: Mapping[str, ListenerBounds] = msgspec.field(default_factory=dict)
    # Inter-broker listener, which the limit of all connections does not apply to. None if there is
    # only one listener.
    protected_listener: str | None = None

    def of_listener(self, name: str) -> ListenerBounds:
        """Return the additional limits of one listener."""
        return self.by_listener.get(name, _UNBOUNDED)

    def of_address(self, address: str) -> int:
        """Return the maximum number of connections of an address."""
        return self.by_address.get(address, self.per_address)


_UNBOUNDED = ListenerBounds()


def connection_bounds(config: ParsedConfig, given: Mapping[str, str]) -> ConnectionBounds:
    """Return the limits of a configuration.

    Args:
        config: the parsed configuration.
        given: all given properties, which include keys of single listeners.

    Raises:
        ConfigError: a value for a single listener is invalid.
    """
    names = [text.partition("://")[0].upper() for text in config.strings("listeners")]
    inter_broker = config.optional_string("inter.broker.listener.name") or names[0]
    return ConnectionBounds(
        connections=config.integer("max.connections"),
        rate=config.integer("max.connection.creation.rate"),
        per_address=config.integer("max.connections.per.ip"),
        by_address=parse_overrides(config.string("max.connections.per.ip.overrides")) or {},
        by_listener={name: _listener_bounds(config, given, name) for name in names},
        protected_listener=inter_broker.upper() if len(names) > 1 else None,
    )


def check_connection_bounds(config: ParsedConfig) -> None:
    """Check that at least one address may connect, as Kafka does.

    Raises:
        ConfigError: no address may connect.
    """
    key = "max.connections.per.ip"
    if config.integer(key) == 0 and not config.string(f"{key}.overrides"):
        allowed = f"at least 1; 0 only where {key}.overrides names addresses"
        raise ConfigError(key, "0", allowed)


def listener_keys(config: ParsedConfig) -> set[str]:
    """Return the names of all keys that can be set for single listeners of this configuration."""
    names = [text.partition("://")[0] for text in config.strings("listeners")]
    return {_listener_key(name, key) for name in names for key in LISTENER_OVERRIDABLE}


def _listener_bounds(config: ParsedConfig, given: Mapping[str, str], name: str) -> ListenerBounds:
    values = [INT_MAX, INT_MAX]
    for index, key in enumerate(LISTENER_OVERRIDABLE):
        text = given.get(_listener_key(name, key))
        if text is not None:
            value = config.definition.parse_value(key, text)
            assert isinstance(value, int), key
            values[index] = value
    return ListenerBounds(*values)


def _listener_key(name: str, key: str) -> str:
    return f"listener.name.{name.lower()}.{key}"
