"""Endpoints of a configuration: addresses, listeners, and the voters of the quorum.

Bound and advertised endpoints follow Kafka's listener settings. Roles, voters and controller
listeners are those of KIP-500, KIP-595 and KIP-853.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from barnabas.metadata.machines import ids_by_machine
from barnabas.protocol.primitives import uuid_from_string
from barnabas.runtime.process import host_name
from barnabas.runtime.sockets import is_wildcard
from barnabas.settings.definition import ConfigError
from barnabas.settings.key import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.settings.definition import ParsedConfig


class SecurityProtocol(IntEnum):
    """Protection of the connections of a listener, with Kafka's numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3

    @property
    def has_tls(self) -> bool:
        """Whether the connections use TLS."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


_PORT_MAX = 65_535


class Endpoint(NamedTuple):
    """A listener endpoint, written as NAME://HOST:PORT."""

    # Name of the listener in upper case, for example PLAINTEXT or CONTROLLER.
    name: str
    # Empty for all interfaces.
    host: str
    port: int
    security_protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT

    @property
    def address(self) -> str:
        """HOST:PORT, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.name}://{self.address}"


def parse_endpoint(text: str) -> Endpoint | None:
    """Parse NAME://HOST:PORT, and return None for invalid text."""
    name, separator, address = text.strip().partition("://")
    if not separator or not name:
        return None
    parsed = parse_address(address)
    return None if parsed is None else Endpoint(name.upper(), *parsed)


def parse_address(text: str) -> tuple[str, int] | None:
    """Parse HOST:PORT or [IPV6]:PORT into host and port, and return None for invalid text."""
    host, colon, port = text.strip().rpartition(":")
    number = whole_number(port) if port.isdigit() else None
    if not colon or number is None or number > _PORT_MAX:
        return None
    if host.startswith("[") and host.endswith("]"):
        return host[1:-1], number
    return None if ":" in host else (host, number)


def is_loopback(host: str) -> bool:
    """Return whether the host is a loopback address, which only this machine can connect to."""
    if host == "localhost":
        return True
    # Imported here because most starts do not need it.
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


BROKER, CONTROLLER = "broker", "controller"
_VOTERS, _BOOTSTRAP = "controller.quorum.voters", "controller.quorum.bootstrap.servers"
_CLUSTER_ID = "cluster.id"
_STANDALONE = "cluster.standalone"


class ClusterSettings(msgspec.Struct, frozen=True):
    """Role of this node and addresses of the controllers, from the configuration."""

    node_id: int
    is_broker: bool
    is_controller: bool
    # Addresses (host, port) of the static voters by node id. Empty for dynamic voters, and for a
    # single-node cluster without configured voters.
    voters: Mapping[int, tuple[str, int]]
    # Addresses of controllers for finding the leader of a dynamic quorum.
    bootstrap_servers: tuple[tuple[str, int], ...]
    # Names in upper case. Nodes use the first listener to reach controllers.
    controller_listeners: tuple[str, ...]
    # Cluster id for formatting empty directories. None if it is not configured.
    cluster_id: str | None
    # Whether an empty directory is formatted as the first voter of a dynamic quorum.
    is_standalone: bool = False

    @property
    def roles(self) -> list[str]:
        """Values of `process.roles`."""
        roles = {BROKER: self.is_broker, CONTROLLER: self.is_controller}
        return [role for role, has_role in roles.items() if has_role]

    @property
    def may_found_cluster(self) -> bool:
        """Whether an empty directory may get a new cluster id if none is configured."""
        return self.is_alone or self.is_standalone

    @property
    def is_alone(self) -> bool:
        """Whether this process is a broker and the only controller, and needs no other node."""
        others = self.voters.keys() - {self.node_id}
        return self.is_broker and self.is_controller and not (others or self.bootstrap_servers)


def cluster_settings(config: ParsedConfig) -> ClusterSettings:
    """Read and check the cluster settings.

    Raises:
        ConfigError: invalid values, or values that contradict each other.
    """
    roles = config.strings("process.roles")
    settings = ClusterSettings(
        node_id=config.integer("node.id"),
        is_broker=BROKER in roles,
        is_controller=CONTROLLER in roles,
        voters=_voters(config),
        bootstrap_servers=_bootstrap_servers(config),
        controller_listeners=tuple(
            name.upper() for name in config.strings("controller.listener.names")
        ),
        cluster_id=_cluster_id(config),
        is_standalone=config.boolean(_STANDALONE),
    )
    _check_voters(config, settings)
    return settings


def _voters(config: ParsedConfig) -> dict[int, tuple[str, int]]:
    found: dict[int, tuple[str, int]] = {}
    for text in config.strings(_VOTERS):
        voter = parse_voter(text)
        if voter is None:
            raise ConfigError(_VOTERS, text, "ID@HOST:PORT,..., for example 1@10.0.0.1:9093")
        number, address = voter
        if number in found:
            raise ConfigError(_VOTERS, text, "each voter once")
        found[number] = address
    return found


def parse_voter(text: str) -> tuple[int, tuple[str, int]] | None:
    """Parse ID@HOST:PORT into node id and address (host, port); return None for invalid text."""
    number, at, address = text.partition("@")
    parsed = parse_address(address)
    if not (at and parsed and number.isascii() and number.isdigit()):
        return None
    return int(number), parsed


def shared_voter_machines(hosts: Mapping[int, str]) -> list[tuple[str, str]]:
    """Return the machines with several voters: the problem and its remedy.

    Args:
        hosts: Host by id of the voter. If all are the same, the cluster has only one machine.
    """
    voters = ids_by_machine({voter: host.lower() for voter, host in hosts.items()})
    if len(voters) < 2:
        return []
    majority = len(hosts) // 2 + 1
    found = []
    for host, ids in voters.items():
        if len(ids) > 1:
            problem = (
                f"voters {', '.join(map(str, ids))} of the metadata quorum share {host}: if it "
                f"dies, {len(hosts) - len(ids)} of {len(hosts)} voters are left, and {majority} "
                "are required"
            )
            found.append((problem, "run each voter on a machine of its own"))
    return found


def _bootstrap_servers(config: ParsedConfig) -> tuple[tuple[str, int], ...]:
    found = []
    for text in config.strings(_BOOTSTRAP):
        parsed = parse_address(text)
        if parsed is None:
            raise ConfigError(_BOOTSTRAP, text, "HOST:PORT,...")
        found.append(parsed)
    return tuple(found)


def _cluster_id(config: ParsedConfig) -> str | None:
    text = config.optional_string(_CLUSTER_ID)
    if text is None:
        return None
    try:
        uuid_from_string(text)
    except ValueError as error:
        allowed = "a UUID of 22 characters, as `barnabas cluster` or kafka-storage random-uuid make"
        raise ConfigError(_CLUSTER_ID, text, allowed) from error
    return text


def _check_voters(config: ParsedConfig, settings: ClusterSettings) -> None:
    node_id, voters = settings.node_id, settings.voters
    if settings.is_standalone and (voters or not settings.is_controller):
        allowed = f"false, unless the node is a controller and {_VOTERS} is empty"
        raise ConfigError(_STANDALONE, "true", allowed)
    given = ",".join(config.strings(_VOTERS))
    if voters:
        if settings.bootstrap_servers:
            allowed = f"empty, or {_VOTERS} is: voters are either static or dynamic"
            raise ConfigError(_BOOTSTRAP, ",".join(config.strings(_BOOTSTRAP)), allowed)
        if settings.is_controller and node_id not in voters:
            allowed = f"{node_id}@HOST:PORT too (this node is a controller)"
            raise ConfigError(_VOTERS, given, allowed)
        if not settings.is_controller and node_id in voters:
            allowed = f"other nodes only (node {node_id} is no controller)"
            raise ConfigError(_VOTERS, given, allowed)
    elif not (settings.bootstrap_servers or settings.is_alone):
        allowed = f"ID@HOST:PORT,... of the cluster's controllers (or {_BOOTSTRAP})"
        raise ConfigError(_VOTERS, given, allowed)


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
