"""Configuration of a node: reads the keys of all packages together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.controller.config import CONTROLLER_CONFIGS
from barnabas.coordinator.group.config import DEFINITION as COORDINATOR_KEYS
from barnabas.raft.config import RAFT_CONFIGS
from barnabas.replication.config import DEFINITION as REPLICATION_KEYS
from barnabas.server.configs.cluster_settings import ClusterSettings, cluster_settings
from barnabas.server.configs.config import SERVER_KEYS, request_memory
from barnabas.server.configs.endpoint import is_loopback
from barnabas.server.configs.ignored_keys import IGNORED_KEYS
from barnabas.server.configs.listener_endpoints import (
    advertised_controller_endpoints,
    advertised_endpoints,
    bound_endpoints,
    controller_endpoints,
    inter_broker_listener,
)
from barnabas.server.quotas.connection_bounds import (
    ConnectionBounds,
    check_connection_bounds,
    connection_bounds,
    listener_keys,
)
from barnabas.storage.config import BROKER_CONFIGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from barnabas.server.configs.endpoint import Endpoint
    from barnabas.settings.definition import ParsedConfig

_log = logging.getLogger(__name__)

BROKER_KEYS = (
    SERVER_KEYS
    | BROKER_CONFIGS
    | REPLICATION_KEYS
    | RAFT_CONFIGS
    | CONTROLLER_CONFIGS
    | COORDINATOR_KEYS
)

# Current name of each renamed Kafka key, by its old name.
_RENAMED = {"broker.id": "node.id"}


class Configuration(msgspec.Struct, frozen=True):
    """The checked configuration that a node is started with."""

    parsed: ParsedConfig
    # Given values as text, under the current names of their keys.
    given: Mapping[str, str]
    # Roles, voters and cluster id.
    cluster: ClusterSettings
    # Endpoints to bind for clients and brokers. Port 0 stands for a free port.
    endpoints: list[Endpoint]
    # Endpoints to bind for the controller. Empty without a controller, or if no other node uses it.
    controller_endpoints: list[Endpoint]
    # Endpoints where other nodes reach the controller.
    advertised_controller_endpoints: list[Endpoint]
    # Limits for the number and rate of connections.
    connections: ConnectionBounds

    @property
    def node_id(self) -> int:
        """Id of the node."""
        return self.parsed.integer("node.id")

    @property
    def is_single(self) -> bool:
        """Whether the cluster has no other nodes: no other voter, and no controller listener."""
        return self.cluster.is_alone and not self.controller_endpoints

    @property
    def inter_broker_listener(self) -> str | None:
        """Name of the listener for traffic between brokers, or None without client listeners."""
        return inter_broker_listener(self.parsed, self.endpoints)


def read_configuration(properties: Mapping[str, str]) -> Configuration:
    """Check the given properties and add the defaults. Unknown keys are logged as warnings.

    Raises:
        ConfigError: an invalid value. The message has the key, the value and what is allowed.
    """
    given: dict[str, str] = {}
    for name, value in properties.items():
        given[_RENAMED.get(name, name)] = value
    parsed = BROKER_KEYS.parse(given)
    of_listeners = listener_keys(parsed)
    _log_unknown_keys([name for name in parsed.unknown if name not in of_listeners], given)
    request_memory(parsed)
    check_connection_bounds(parsed)
    cluster = cluster_settings(parsed)
    endpoints = bound_endpoints(parsed, cluster)
    for_controller = controller_endpoints(parsed, cluster)
    advertised_for_controller = advertised_controller_endpoints(parsed, cluster, for_controller)
    # Report invalid values now, before the ports are bound.
    advertised_endpoints(parsed, endpoints)
    return Configuration(
        parsed,
        given,
        _with_own_quorum(cluster, advertised_for_controller),
        endpoints,
        for_controller,
        advertised_for_controller,
        connection_bounds(parsed, given),
    )


def _with_own_quorum(cluster: ClusterSettings, own: list[Endpoint]) -> ClusterSettings:
    """Let a node that bootstraps only from itself, by a loopback address, found a dynamic quorum.

    Kafka's example file for a first start has this configuration, but Kafka also requires
    `kafka-storage format --standalone`. With another address the node may be one of several nodes
    and may have lost its disk. It must not found a second cluster under the same address.
    """
    addresses = {(each.host, each.port) for each in own}
    servers = cluster.bootstrap_servers
    if not (cluster.is_broker and cluster.is_controller and servers):
        return cluster
    is_own = addresses.issuperset(servers) and all(is_loopback(host) for host, _ in servers)
    return replace(cluster, is_standalone=True) if is_own else cluster


def _log_unknown_keys(names: list[str], given: Mapping[str, str]) -> None:
    ignored = sorted(name for name in names if name in IGNORED_KEYS)
    if ignored:
        _log.info("Keys of Kafka that this broker ignores: %s", ", ".join(ignored))
    for name in names:
        if name not in IGNORED_KEYS:
            _log.warning("%s=%s has no effect: %s", name, given[name], _unknown(name))


def _unknown(name: str) -> str:
    """Return the warning for an unknown key, with the most similar known key."""
    import difflib

    close = difflib.get_close_matches(
        name, [*(key.name for key in BROKER_KEYS), *IGNORED_KEYS], n=1, cutoff=0.85
    )
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"this broker does not know the key{hint}"
