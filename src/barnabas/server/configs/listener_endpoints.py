"""Bound and advertised endpoints of a configuration (Kafka's listener settings)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.runtime.process import host_name
from barnabas.server.configs.endpoint import Endpoint, is_wildcard, parse_endpoint
from barnabas.server.configs.security_protocol import SecurityProtocol
from barnabas.settings.definition import ConfigError

if TYPE_CHECKING:
    from barnabas.server.configs.cluster_settings import ClusterSettings
    from barnabas.settings.definition import ParsedConfig

_FORM = "NAME://HOST:PORT, for example PLAINTEXT://127.0.0.1:9092"
_PLAINTEXT = "PLAINTEXT"
_INTER_BROKER_NAME = "inter.broker.listener.name"
_INTER_BROKER_PROTOCOL = "security.inter.broker.protocol"
_PROTOCOL_MAP = "listener.security.protocol.map"


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
        raise ConfigError(
            "listeners", text, "no controller listener (this node is not a controller)"
        )
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
        protocol = _protocol(config, protocols, endpoint.name)
        endpoints[endpoint.name] = endpoint._replace(security_protocol=protocol)
    return list(endpoints.values())


def inter_broker_listener(config: ParsedConfig, endpoints: list[Endpoint]) -> str | None:
    """Return the name of the listener for traffic between brokers, or None without listeners."""
    name = config.optional_string(_INTER_BROKER_NAME)
    if name is not None:
        return name.upper()
    if _INTER_BROKER_PROTOCOL in config.given:
        return config.string(_INTER_BROKER_PROTOCOL)
    names = [endpoint.name for endpoint in endpoints]
    if _PLAINTEXT in names:
        return _PLAINTEXT
    return names[0] if names else None


def security_protocols(
    config: ParsedConfig, cluster: ClusterSettings, endpoints: list[Endpoint]
) -> dict[str, SecurityProtocol]:
    """Return the security protocol of each listener that this node opens or connects to.

    Args:
        config: the parsed configuration.
        cluster: the controller listeners, which the node may only connect to.
        endpoints: all endpoints that the node opens.

    Raises:
        ConfigError: a listener has an unknown protocol, or none.
    """
    known = _protocols(config)
    names = [each.name for each in endpoints]
    if not cluster.is_alone:
        names += cluster.controller_listeners
    to_brokers = inter_broker_listener(config, endpoints)
    if to_brokers in known:
        # A controller without such a listener connects to brokers, too.
        names.append(to_brokers)
    return {name: _protocol(config, known, name) for name in dict.fromkeys(names)}


def _protocols(config: ParsedConfig) -> dict[str, str]:
    """Return the security protocol of each listener name, both in upper case."""
    pairs = (entry.split(":") for entry in config.strings(_PROTOCOL_MAP))
    return {name.strip().upper(): protocol.strip().upper() for name, protocol in pairs}


def _protocol(config: ParsedConfig, protocols: dict[str, str], name: str) -> SecurityProtocol:
    """Return the security protocol of a listener.

    Without a protocol map, names that start with SSL or SASL are SSL. All others are PLAINTEXT.

    Raises:
        ConfigError: the configuration has a protocol map without this listener, or with an unknown
            protocol for it.
    """
    known = protocols.get(name)
    if known is None:
        if _PROTOCOL_MAP in config.given:
            text = ",".join(config.strings(_PROTOCOL_MAP))
            raise ConfigError(_PROTOCOL_MAP, text, f"a protocol for listener {name} too")
        known = "SSL" if name.startswith(("SSL", "SASL")) else _PLAINTEXT
    if known not in SecurityProtocol.__members__:
        allowed = ", ".join(SecurityProtocol.__members__)
        raise ConfigError(_PROTOCOL_MAP, f"{name}:{known}", f"one of {allowed}")
    return SecurityProtocol[known]


def _check_inter_broker_listener(config: ParsedConfig, endpoints: list[Endpoint]) -> None:
    name = config.optional_string(_INTER_BROKER_NAME)
    names = [endpoint.name for endpoint in endpoints]
    if name is not None and name.upper() not in names:
        raise ConfigError(_INTER_BROKER_NAME, name, f"a name of listeners: {', '.join(names)}")
    if _INTER_BROKER_PROTOCOL not in config.given:
        return
    protocol = config.string(_INTER_BROKER_PROTOCOL)
    if name is not None:
        allowed = f"only one of {_INTER_BROKER_PROTOCOL} and {_INTER_BROKER_NAME}"
        raise ConfigError(_INTER_BROKER_PROTOCOL, protocol, allowed)
    if protocol not in names:
        allowed = (
            f"a protocol whose name is also the name of a listener ({', '.join(names)}); for other "
            f"names use {_INTER_BROKER_NAME}"
        )
        raise ConfigError(_INTER_BROKER_PROTOCOL, protocol, allowed)


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
        found = given.get(endpoint.name, endpoint)
        # Replace port 0 by the free port that was bound.
        found = found._replace(security_protocol=endpoint.security_protocol)
        advertised.append(found if found.port else found._replace(port=endpoint.port))
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
    for index, endpoint in enumerate(bound):
        found = given.get(endpoint.name, endpoint)
        if index == 0 and endpoint.name not in given and cluster.node_id in cluster.voters:
            # Use the address of this node in the voter list.
            found = Endpoint(endpoint.name, *cluster.voters[cluster.node_id])
        _check_connectable(config, found)
        advertised.append(found._replace(security_protocol=endpoint.security_protocol))
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
    if not is_wildcard(endpoint.host):
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
        str(each._replace(host=host) if is_wildcard(each.host) else each) for each in advertised
    )


def _endpoint(key: str, text: str) -> Endpoint:
    endpoint = parse_endpoint(text)
    if endpoint is None:
        raise ConfigError(key, text, _FORM)
    return endpoint
