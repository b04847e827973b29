"""Limits for the number and rate of connections (Kafka: SocketServerConfigs)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from barnabas.server.quotas.config import INT_MAX, LISTENER_OVERRIDABLE, parse_overrides
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig


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
