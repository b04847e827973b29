"""Bound and advertised endpoints of a configuration (Kafka's listener settings)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.host import host_name
from barnabas.server.configs.endpoint import Endpoint, parse_endpoint
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from barnabas.server.configs.cluster_settings import ClusterSettings
    from barnabas.settings.definition import ParsedConfig

_FORM = "NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
_PLAINTEXT = "PLAINTEXT"
_EVERY_INTERFACE = ("", "0.0.0.0", "::")  # noqa: S104


def bound_endpoints(config: ParsedConfig, cluster: ClusterSettings) -> list[Endpoint]:
    """Return the endpoints to bind for clients and brokers, without controller listeners.

    Raises:
        ConfigError: invalid endpoint text, a duplicate listener name, an unsupported security
            protocol, an unknown inter-broker listener, or listeners that do not fit the roles.
    """
    endpoints = [
        each for each in _all_endpoints(config) if each.name not in cluster.controller_listeners
    ]
    text = ",".join(config.strings("listeners"))
    if not cluster.is_broker:
        if endpoints and "listeners" in config.given:
            names = ", ".join(cluster.controller_listeners)
            raise ConfigError("listeners", text, f"listeners of controllers only ({names})")
        return []
    if not endpoints:
        raise ConfigError("listeners", text, "at least one listener for clients")
    _check_inter_broker_listener(config, endpoints)
    return endpoints


def controller_endpoints(config: ParsedConfig, cluster: ClusterSettings) -> list[Endpoint]:
    """Return the endpoints of the controller, in the order of controller.listener.names.

    Raises:
        ConfigError: the endpoints are invalid or do not fit the roles, as for `bound_endpoints`.
    """
    found = {each.name: each for each in _all_endpoints(config)}
    endpoints = [found[name] for name in cluster.controller_listeners if name in found]
    text = ",".join(config.strings("listeners"))
    if endpoints and not cluster.is_controller:
        raise ConfigError("listeners", text, "no listener of a controller (this node is none)")
    if cluster.is_controller and not cluster.is_alone and not endpoints:
        first = cluster.controller_listeners[0]
        raise ConfigError("listeners", text, f"{first}://HOST:PORT too (this node is a controller)")
    return endpoints


def _all_endpoints(config: ParsedConfig) -> list[Endpoint]:
    protocols = _protocols(config)
    endpoints: dict[str, Endpoint] = {}
    for text in config.strings("listeners"):
        endpoint = _endpoint("listeners", text)
        if endpoint.name in endpoints:
            raise ConfigError("listeners", text, "each listener name once")
        if _protocol(config, protocols, endpoint.name) != _PLAINTEXT:
            raise ConfigError(
                "listeners",
                text,
                "PLAINTEXT listeners only (TLS and SASL are not there yet; to do without, give the "
                "listener PLAINTEXT in listener.security.protocol.map)",
            )
        endpoints[endpoint.name] = endpoint
    return list(endpoints.values())


def inter_broker_listener(config: ParsedConfig, endpoints: list[Endpoint]) -> str | None:
    """Return the name of the listener for traffic between brokers, or None without listeners."""
    name = config.optional_string("inter.broker.listener.name")
    if name is not None:
        return name.upper()
    names = [endpoint.name for endpoint in endpoints]
    if _PLAINTEXT in names:
        return _PLAINTEXT
    return names[0] if names else None


def _protocols(config: ParsedConfig) -> dict[str, str]:
    """Return the security protocol of each listener name, both in upper case."""
    pairs = (entry.split(":") for entry in config.strings("listener.security.protocol.map"))
    return {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}


def _protocol(config: ParsedConfig, protocols: dict[str, str], name: str) -> str:
    """Return the security protocol of a listener.

    Without a protocol map, names that start with SSL or SASL are SSL. All others are PLAINTEXT.

    Raises:
        ConfigError: the configuration has a protocol map without this listener.
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
    """Return the endpoints to advertise to clients, one for each endpoint in `bound`.

    Args:
        bound: bound endpoints with their real ports.

    Raises:
        ConfigError: an unknown listener, or an address that clients cannot connect to.
    """
    given = _given_addresses(config)
    advertised = []
    for endpoint in bound:
        told = given.get(endpoint.name, endpoint)
        # Port 0 stands for the free port that was bound.
        advertised.append(told if told.port else told._replace(port=endpoint.port))
    for endpoint in advertised:
        _check_connectable(config, endpoint)
    return advertised


def advertised_controller_endpoints(
    config: ParsedConfig, cluster: ClusterSettings, bound: list[Endpoint]
) -> list[Endpoint]:
    """Return the endpoints where other nodes reach the controller listeners.

    Raises:
        ConfigError: an address that other nodes cannot connect to.
    """
    given = _given_addresses(config)
    advertised: list[Endpoint] = []
    for place, endpoint in enumerate(bound):
        found = given.get(endpoint.name, endpoint)
        if place == 0 and endpoint.name not in given and cluster.node_id in cluster.voters:
            # Use the address of this node in the voter list.
            found = Endpoint(endpoint.name, *cluster.voters[cluster.node_id])
        _check_connectable(config, found)
        advertised.append(found)
    return advertised


def _given_addresses(config: ParsedConfig) -> dict[str, Endpoint]:
    given: dict[str, Endpoint] = {}
    if config["advertised.listeners"] is not None:
        for text in config.strings("advertised.listeners"):
            endpoint = _endpoint("advertised.listeners", text)
            given[endpoint.name] = endpoint
    return given


def _check_connectable(config: ParsedConfig, endpoint: Endpoint) -> None:
    """Raise an error for a wildcard address, which clients cannot connect to."""
    if endpoint.host not in _EVERY_INTERFACE:
        return
    host = host_name()
    raise ConfigError(
        "advertised.listeners",
        str(endpoint),
        f"an address that clients can connect to: add --set advertised.listeners="
        f"{_with_host(config, host)} (instead of {host} any name or address by which clients "
        f"reach this machine)",
    )


def _with_host(config: ParsedConfig, host: str) -> str:
    """Return a value for advertised.listeners that has an address for every listener."""
    given = _given_addresses(config)
    endpoints = (_endpoint("listeners", text) for text in config.strings("listeners"))
    advertised = (given.get(each.name, each) for each in endpoints)
    return ",".join(
        str(each._replace(host=host) if each.host in _EVERY_INTERFACE else each)
        for each in advertised
    )


def _endpoint(key: str, text: str) -> Endpoint:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        raise ConfigError(key, text, _FORM)
    return endpoint
