"""Which addresses a configuration binds, and which it advertises (Kafka: the listeners keys)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.server.endpoint import Endpoint, parse_endpoint
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from barnabas.settings.definition import ParsedConfig

_FORM = "NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
_PLAINTEXT = "PLAINTEXT"
_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104


def bound_endpoints(config: ParsedConfig) -> list[Endpoint]:
    """What to listen on, the controller's listeners left out.

    Raises:
        ConfigError: text that is no endpoint, a name used twice, a protocol that is not spoken,
            an inter-broker listener that is not there.
    """
    protocols = _protocols(config)
    controllers = {name.upper() for name in config.strings("controller.listener.names")}
    endpoints: list[Endpoint] = []
    for text in config.strings("listeners"):
        endpoint = _endpoint("listeners", text)
        if endpoint.name in controllers:
            continue
        if endpoint.name in {known.name for known in endpoints}:
            raise ConfigError("listeners", text, "each listener name once")
        if _protocol(config, protocols, endpoint.name) != _PLAINTEXT:
            raise ConfigError(
                "listeners",
                text,
                "PLAINTEXT listeners only (TLS and SASL are not there yet; to do without, give the "
                "listener PLAINTEXT in listener.security.protocol.map)",
            )
        endpoints.append(endpoint)
    if not endpoints:
        raise ConfigError(
            "listeners", ",".join(config.strings("listeners")), "at least one listener for clients"
        )
    _check_inter_broker_listener(config, endpoints)
    return endpoints


def _protocols(config: ParsedConfig) -> dict[str, str]:
    """Listener's name to security protocol, both in capitals."""
    pairs = (entry.split(":") for entry in config.strings("listener.security.protocol.map"))
    return {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}


def _protocol(config: ParsedConfig, protocols: dict[str, str], name: str) -> str:
    """The security protocol of a listener; without a map, names mean nothing: PLAINTEXT.

    Raises:
        ConfigError: the map is given and says nothing of the listener.
    """
    known = protocols.get(name)
    if known is not None:
        return known
    key = "listener.security.protocol.map"
    if key in config.given:
        raise ConfigError(key, ",".join(config.strings(key)), f"a protocol for listener {name} too")
    return "SSL" if name.startswith(("SSL", "SASL")) else _PLAINTEXT


def _check_inter_broker_listener(config: ParsedConfig, endpoints: list[Endpoint]) -> None:
    name = config.optional_string("inter.broker.listener.name")
    names = [endpoint.name for endpoint in endpoints]
    if name is not None and name.upper() not in names:
        raise ConfigError(
            "inter.broker.listener.name", name, f"a name of listeners: {', '.join(names)}"
        )


def advertised_endpoints(config: ParsedConfig, bound: list[Endpoint]) -> list[Endpoint]:
    """What clients are told, one for each of `bound` (whose ports are the real ones).

    Raises:
        ConfigError: a listener that is not there, or no address that a client can connect to.
    """
    given: dict[str, Endpoint] = {}
    if config["advertised.listeners"] is not None:
        for text in config.strings("advertised.listeners"):
            endpoint = _endpoint("advertised.listeners", text)
            given[endpoint.name] = endpoint
    advertised = [given.get(endpoint.name, endpoint) for endpoint in bound]
    for endpoint in advertised:
        if endpoint.host in _EVERY_INTERFACE:
            raise ConfigError(
                "advertised.listeners",
                str(endpoint),
                "an address that clients can connect to; set advertised.listeners "
                "when listening on every interface",
            )
    return advertised


def _endpoint(key: str, text: str) -> Endpoint:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        raise ConfigError(key, text, _FORM)
    return endpoint
