"""Configurations of the processes of a node, which follow from one configuration of the operator.

A node with `barnabas.node.brokers` is several broker processes and, if its roles include the
controller, one controller process. The operator writes the configuration of one process. The ids,
ports and directories of the processes follow from it by the rules of docs/node.md. A key
`barnabas.node.broker.NUMBER.KEY` or `barnabas.node.controller.KEY` overrides what follows.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import msgspec

from barnabas.runtime.sockets import is_wildcard
from barnabas.server.configs.config import log_directories, node_directories
from barnabas.server.configs.configuration import read_configuration
from barnabas.server.configs.endpoints import (
    Endpoint,
    SecurityProtocol,
    advertised_endpoints,
    is_loopback,
    parse_endpoint,
)
from barnabas.server.configs.node_keys import (
    BROKERS_KEY,
    BROKERS_MAX,
    MEMBERS_KEY,
    OVERRIDE,
    STOP_TIMEOUT_KEY,
    NodeDirectories,
    folder_name,
)
from barnabas.settings.key import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.server.configs.configuration import Configuration

_PREFIX = "barnabas.node."
# The controller of a node without configured voters listens so far above the clients' port.
_CONTROLLER_PORT_STEP = 100
_PORT_MAX = 65_535
_LOOPBACK = "127.0.0.1"
# Replicas on one machine do not survive its loss, so a node that is the whole cluster has one.
_ALONE = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NodeProcessPlan(msgspec.Struct, frozen=True):
    """One process of a node."""

    node_id: int
    # Position among the brokers, from 1 on. None for the process that is a controller only.
    number: int | None
    # Complete properties, without the keys of the node.
    properties: Mapping[str, str]
    configuration: Configuration

    @property
    def is_broker(self) -> bool:
        """Whether the process serves clients."""
        return self.number is not None

    @property
    def kind(self) -> str:
        """The words broker or controller."""
        return "broker" if self.is_broker else "controller"

    @property
    def name(self) -> str:
        """Name of the process in messages, for example "broker 101"."""
        return f"{self.kind} {self.node_id}"


class _Base(msgspec.Struct, frozen=True):
    """The operator's configuration, and facts about the node that all processes share."""

    # Without the keys of the node.
    properties: Mapping[str, str]
    configuration: Configuration
    directories: NodeDirectories
    # Distance between the ports of a listener of two neighboring brokers.
    port_step: int
    # Overriding keys, by position of the broker; None for the controller.
    overrides: dict[int | None, dict[str, str]]
    # The controller listener and keys of a node whose configuration names no controllers.
    quorum: dict[str, str]
    # Endpoint that the controller gets in addition, or None.
    controller_endpoint: Endpoint | None
    # Ids of the brokers, in order.
    broker_ids: tuple[int, ...]


def node_layout(
    properties: Mapping[str, str],
    count: int,
    directories: NodeDirectories,
    new_cluster_id: Callable[[], str],
    reserve_port: Callable[[str], int],
) -> tuple[NodeProcessPlan, ...]:
    """Return the processes of a node, the controller first.

    Args:
        properties: the operator's keys.
        count: number of brokers.
        directories: what was found in the data directories.
        new_cluster_id: returns the id of a new cluster.
        reserve_port: returns a free port of a host, which stays free for the node.

    Raises:
        ConfigError: invalid values, or values with which two processes would have the same id, port
            or directory.
    """
    base = _read_base(properties, count, directories, new_cluster_id, reserve_port)
    cluster = base.configuration.cluster
    plans: list[NodeProcessPlan] = []
    if cluster.is_controller and not directories.is_single:
        plans.append(_plan(base, None, _controller_properties(base), reserve_port))
    plans += [
        _plan(base, number, _broker_properties(base, number), reserve_port)
        for number in range(1, count + 1)
    ]
    _check_distinct(plans)
    return tuple(plans)


def broker_count(text: str, usable_cores: int, node_id: int, directories: NodeDirectories) -> int:
    """Return the number of brokers for a value of `barnabas.node.brokers`.

    Raises:
        ConfigError: brokers with a larger number have data in the directories.
    """
    block = node_id * (BROKERS_MAX + 1)
    numbers = [each - block for each in directories.broker_ids if 0 < each - block <= BROKERS_MAX]
    existing = max(numbers, default=1)
    if text == "auto":
        return max(existing, min(usable_cores, BROKERS_MAX))
    count = int(text)
    if existing > count:
        folder = folder_name("broker", block + existing)
        raise ConfigError(
            BROKERS_KEY,
            text,
            f"at least {existing}, because the folder {folder} in the data directory has "
            f"partitions. Start the node with {existing} brokers and move the partitions away: "
            f"barnabas rebalance --exclude-broker {block + existing}",
        )
    return count


def _read_base(
    properties: Mapping[str, str],
    count: int,
    directories: NodeDirectories,
    new_cluster_id: Callable[[], str],
    reserve_port: Callable[[str], int],
) -> _Base:
    own = {name: value for name, value in properties.items() if not name.startswith(_PREFIX)}
    configuration = read_configuration(own, warns=False)
    cluster = configuration.cluster
    if not cluster.is_broker:
        raise ConfigError(
            BROKERS_KEY, properties.get(BROKERS_KEY), "unset, because process.roles has no broker"
        )
    found = cluster.cluster_id or directories.cluster_id
    if found is None and cluster.may_found_cluster:
        found = new_cluster_id()
    if found is not None:
        own["cluster.id"] = found
    quorum: dict[str, str] = {}
    endpoint: Endpoint | None = None
    if cluster.is_alone:
        own = _ALONE | own
        endpoint = _controller_endpoint(configuration, reserve_port)
        quorum = _quorum_keys(own, configuration, endpoint)
        if configuration.controller_endpoints:
            endpoint = None
    return _Base(
        own,
        configuration,
        directories,
        _port_step(configuration),
        _overrides(properties),
        quorum,
        endpoint,
        tuple(_broker_id(configuration, directories, number) for number in range(1, count + 1)),
    )


def _broker_id(configuration: Configuration, directories: NodeDirectories, number: int) -> int:
    """Return the id of a broker. Nodes with different ids have different blocks of broker ids."""
    node_id = configuration.node_id
    if number == 1 and directories.is_single:
        return node_id
    return node_id * (BROKERS_MAX + 1) + number


def _overrides(properties: Mapping[str, str]) -> dict[int | None, dict[str, str]]:
    """Return the overriding keys of each process.

    Raises:
        ConfigError: a key of the node is unknown, or must not be overridden.
    """
    found: dict[int | None, dict[str, str]] = {}
    for name, value in properties.items():
        if not name.startswith(_PREFIX) or name in (BROKERS_KEY, STOP_TIMEOUT_KEY):
            continue
        match = OVERRIDE.fullmatch(name)
        number = int(match[1]) if match and match[1] else None
        if match is None or (number is not None and not 1 <= number <= BROKERS_MAX):
            allowed = (
                f"a known key: {_PREFIX}broker.NUMBER.KEY with a NUMBER from 1 to {BROKERS_MAX}, "
                f"or {_PREFIX}controller.KEY"
            )
            raise ConfigError(name, value, allowed)
        if match[3].startswith(_PREFIX) or match[3] in ("process.roles", "metrics.listener"):
            raise ConfigError(name, value, f"unset, because {match[3]} belongs to the whole node")
        found.setdefault(number, {})[match[3]] = value
    return found


# -- the listeners ------------------------------------------------------------------------------


def _port_step(configuration: Configuration) -> int:
    """Return the distance between the ports of two neighboring brokers.

    It is the smallest one with which the brokers' ports never meet those of another listener,
    however many brokers there are. So it does not change when the node grows.
    """
    clients = [each.port for each in configuration.endpoints if each.port]
    controllers = [each.port for each in configuration.controller_endpoints if each.port]
    step = 1
    while any(
        _meet(first, second, step, is_fixed=second in controllers)
        for first in clients
        for second in (*clients, *controllers)
        if first != second
    ):
        step += 1
    return step


def _meet(first: int, second: int, step: int, *, is_fixed: bool) -> bool:
    """Return whether a port that counts up from `first` ever equals one of the other listener."""
    distance = second - first
    if distance % step:
        return False
    if is_fixed:
        return 0 < distance <= step * BROKERS_MAX
    return abs(distance) <= step * BROKERS_MAX


def _controller_endpoint(
    configuration: Configuration, reserve_port: Callable[[str], int]
) -> Endpoint:
    """Return the address of the controller of a node that is the whole cluster.

    Unprotected, it is reached from this machine only. Protected, it has the host of the brokers'
    listener for each other, because certificates name that host.
    """
    if configuration.controller_endpoints:
        found = configuration.controller_endpoints[0]
        return found if found.port else found._replace(port=reserve_port(found.host))
    name = configuration.cluster.controller_listeners[0]
    between = next(
        each for each in configuration.endpoints if each.name == configuration.inter_broker_listener
    )
    protocol = between.security_protocol
    is_protected = protocol is not SecurityProtocol.PLAINTEXT
    host = between.host if is_protected or is_loopback(between.host) else _LOOPBACK
    port = between.port + _CONTROLLER_PORT_STEP
    if not between.port or port > _PORT_MAX:
        port = reserve_port(host)
    return Endpoint(name, host, port, protocol)


def _quorum_keys(
    own: Mapping[str, str], configuration: Configuration, endpoint: Endpoint
) -> dict[str, str]:
    """Return the keys by which the processes of a lone node find their controller."""
    parsed, name = configuration.parsed, endpoint.name
    if configuration.controller_endpoints:
        advertised = configuration.advertised_controller_endpoints[0]
    else:
        between = configuration.inter_broker_listener
        hosts = advertised_endpoints(parsed, configuration.endpoints)
        host = next(each.host for each in hosts if each.name == between)
        is_local = endpoint.security_protocol is SecurityProtocol.PLAINTEXT
        advertised = endpoint._replace(host=endpoint.host if is_local else host)
    address = advertised._replace(port=advertised.port or endpoint.port).address
    keys = {"controller.quorum.voters": f"{configuration.node_id}@{address}"}
    if configuration.cluster.is_standalone:
        keys = {"controller.quorum.bootstrap.servers": address}
    if configuration.controller_endpoints:
        return keys
    protocols = {each.name: each.security_protocol for each in configuration.endpoints}
    protocols[name] = endpoint.security_protocol
    keys["listener.security.protocol.map"] = ",".join(
        f"{each}:{protocol.name}" for each, protocol in protocols.items()
    )
    if endpoint.security_protocol.has_sasl:
        mechanism = parsed.string("sasl.mechanism.inter.broker.protocol")
        keys["sasl.mechanism.controller.protocol"] = mechanism
    source = f"listener.name.{(configuration.inter_broker_listener or '').lower()}."
    target = f"listener.name.{name.lower()}."
    copies = {
        target + key.removeprefix(source): value
        for key, value in own.items()
        if key.startswith(source)
    }
    return copies | keys


def _shifted(endpoint: Endpoint, shift: int) -> Endpoint:
    port = endpoint.port + shift if endpoint.port else 0
    if port > _PORT_MAX:
        allowed = f"a port so low that the last broker's port, {port}, is at most {_PORT_MAX}"
        raise ConfigError("listeners", str(endpoint), allowed)
    return endpoint._replace(port=port)


def _text(endpoints: Iterable[Endpoint]) -> str:
    return ",".join(map(str, endpoints))


def _advertised(base: _Base, names: Iterable[str], shift: int) -> dict[str, str]:
    """Return the key advertised.listeners with the given listeners; nothing if it is not set."""
    parsed = base.configuration.parsed
    if parsed["advertised.listeners"] is None:
        return {}
    given = [parse_endpoint(text) for text in parsed.strings("advertised.listeners")]
    wanted = set(names)
    found = [_shifted(each, shift) for each in given if each is not None and each.name in wanted]
    return {"advertised.listeners": _text(found)} if found else {}


# -- the processes ------------------------------------------------------------------------------


def _controller_properties(base: _Base) -> dict[str, str]:
    parsed = base.configuration.parsed
    own = {
        name: value
        for name, value in base.properties.items()
        if name not in ("log.dir", "metadata.log.dir", "advertised.listeners")
    }
    endpoints = list(base.configuration.controller_endpoints)
    if base.controller_endpoint is not None:
        endpoints.append(base.controller_endpoint)
    directory = parsed.optional_string("metadata.log.dir") or log_directories(parsed)[0]
    folder = folder_name("controller", base.configuration.node_id)
    own |= base.quorum | {
        "process.roles": "controller",
        "node.id": str(base.configuration.node_id),
        "listeners": _text(endpoints),
        "log.dirs": f"{directory}/{folder}",
    }
    own |= _advertised(base, [each.name for each in endpoints], 0)
    if base.configuration.cluster.is_standalone:
        own["cluster.standalone"] = "true"
    if base.configuration.inter_broker_listener and "inter.broker.listener.name" not in own:
        own.pop("security.inter.broker.protocol", None)
        own["inter.broker.listener.name"] = base.configuration.inter_broker_listener
    return own


def _broker_properties(base: _Base, number: int) -> dict[str, str]:
    configuration = base.configuration
    parsed, node_id = configuration.parsed, base.broker_ids[number - 1]
    shift = (number - 1) * base.port_step
    is_whole_process = number == 1 and base.directories.is_single
    own = dict(base.properties) | base.quorum
    own["node.id"] = str(node_id)
    endpoints = [_shifted(each, shift) for each in configuration.endpoints]
    if is_whole_process and configuration.cluster.is_controller:
        endpoints += configuration.controller_endpoints
        if base.controller_endpoint is not None:
            endpoints.append(base.controller_endpoint)
    else:
        own["process.roles"] = "broker"
        own.pop("cluster.standalone", None)
    if not is_whole_process:
        folder = folder_name("broker", node_id)
        own.pop("log.dir", None)
        own["log.dirs"] = ",".join(f"{each}/{folder}" for each in log_directories(parsed))
        metadata = parsed.optional_string("metadata.log.dir")
        if metadata is not None:
            own["metadata.log.dir"] = f"{metadata}/{folder}"
    own["listeners"] = _text(endpoints)
    own.pop("advertised.listeners", None)
    return own | _advertised(base, [each.name for each in endpoints], shift)


def _plan(
    base: _Base,
    number: int | None,
    properties: Mapping[str, str],
    reserve_port: Callable[[str], int],
) -> NodeProcessPlan:
    """Apply the overriding keys, replace ports 0 and check the configuration of a process."""
    own = dict(properties) | base.overrides.get(number, {})
    own.pop("broker.id", None)
    endpoints = [parse_endpoint(text) for text in own["listeners"].split(",")]
    if all(each is not None for each in endpoints):
        own["listeners"] = _text(
            each if each.port else each._replace(port=_port(base, each, reserve_port))
            for each in endpoints
            if each is not None
        )
    configuration = read_configuration(own, warns=False)
    own[MEMBERS_KEY] = ",".join(map(str, base.broker_ids))
    return NodeProcessPlan(configuration.node_id, number, own, configuration)


def _port(base: _Base, endpoint: Endpoint, reserve_port: Callable[[str], int]) -> int:
    """Return the port for port 0: the reserved one of the controller, or a new one."""
    voters = base.quorum.get("controller.quorum.voters") or base.quorum.get(
        "controller.quorum.bootstrap.servers", ""
    )
    if endpoint.name in base.configuration.cluster.controller_listeners and voters:
        return int(voters.rpartition(":")[2])
    return reserve_port(endpoint.host)


# -- what must differ ---------------------------------------------------------------------------


def _check_distinct(plans: list[NodeProcessPlan]) -> None:
    """Check that processes share no id, port or directory, and no id of another controller."""
    for one, other in combinations(plans, 2):
        if one.node_id == other.node_id:
            raise ConfigError(
                "node.id",
                str(one.node_id),
                f"different ids for all processes of the node; {_hint(other, 'node.id')}",
            )
        for mine in _opened(one):
            for its in _opened(other):
                if mine.port and mine.port == its.port and _overlap(mine.host, its.host):
                    raise ConfigError(
                        "listeners",
                        str(its),
                        f"a free port: {one.name} already uses {mine.port} for {mine.name}; put "
                        f"the ports of the listeners further apart, or {_hint(other, 'listeners')}",
                    )
        shared = set(_directories(one)) & set(_directories(other))
        if shared:
            raise ConfigError(
                "log.dirs",
                min(shared),
                f"different directories for {one.name} and {other.name}; "
                f"{_hint(other, 'log.dirs')}",
            )
    for plan in plans:
        cluster = plan.configuration.cluster
        if not cluster.is_controller and plan.node_id in cluster.voters:
            raise ConfigError(
                "controller.quorum.voters",
                str(plan.node_id),
                f"other ids than those of the brokers; {_hint(plan, 'node.id')}",
            )


def _opened(plan: NodeProcessPlan) -> list[Endpoint]:
    return [*plan.configuration.endpoints, *plan.configuration.controller_endpoints]


def _overlap(one: str, other: str) -> bool:
    return one == other or is_wildcard(one) or is_wildcard(other)


def _directories(plan: NodeProcessPlan) -> list[str]:
    return [each.rstrip("/") for each in node_directories(plan.configuration.parsed)]


def _hint(plan: NodeProcessPlan, key: str) -> str:
    process = f"broker.{plan.number}" if plan.is_broker else "controller"
    return f"set {_PREFIX}{process}.{key} for {plan.name}"
