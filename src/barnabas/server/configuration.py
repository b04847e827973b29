"""A broker's whole configuration: the keys of all packages, read together."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from barnabas.controller.config import CONTROLLER_CONFIGS
from barnabas.coordinator.config import DEFINITION as COORDINATOR_KEYS
from barnabas.raft.config import RAFT_CONFIGS
from barnabas.replication.config import DEFINITION as REPLICATION_KEYS
from barnabas.server.cluster_settings import ClusterSettings, cluster_settings
from barnabas.server.config import SERVER_KEYS, request_memory
from barnabas.server.endpoint import is_loopback
from barnabas.server.ignored_keys import IGNORED_KEYS
from barnabas.server.listeners import (
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

    from barnabas.server.endpoint import Endpoint
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

# Kafka's old name of a key -> the key.
_RENAMED = {"broker.id": "node.id"}


class Configuration(msgspec.Struct, frozen=True):
    """What a broker is started with."""

    parsed: ParsedConfig
    # What was given, as text, under the keys' current names.
    given: Mapping[str, str]
    # Roles, voters, and so on.
    cluster: ClusterSettings
    # What to listen on for clients and brokers; port 0 is a free port.
    endpoints: list[Endpoint]
    # What the controller listens on; empty where there is none, or where nobody else needs it.
    controller_endpoints: list[Endpoint]
    # Where the other nodes reach the controller.
    advertised_controller_endpoints: list[Endpoint]
    # How many connections there may be.
    connections: ConnectionBounds

    @property
    def node_id(self) -> int:
        """The node's number."""
        return self.parsed.integer("node.id")

    @property
    def is_single(self) -> bool:
        """Whether no other node can be in its cluster: it needs none, and none can reach it."""
        return self.cluster.is_alone and not self.controller_endpoints

    @property
    def inter_broker_listener(self) -> str | None:
        """The listener that brokers use among themselves; None for a controller alone."""
        return inter_broker_listener(self.parsed, self.endpoints)


def read_configuration(properties: Mapping[str, str]) -> Configuration:
    """Check and complete what was given; unknown keys are logged as warnings.

    Raises:
        ConfigError: a value that is not allowed; it names key, value and what is allowed.
    """
    given: dict[str, str] = {}
    for name, value in properties.items():
        given[_RENAMED.get(name, name)] = value
    parsed = BROKER_KEYS.parse(given)
    of_listeners = listener_keys(parsed)
    _tell_unknown([name for name in parsed.unknown if name not in of_listeners], given)
    request_memory(parsed)
    check_connection_bounds(parsed)
    cluster = cluster_settings(parsed)
    endpoints = bound_endpoints(parsed, cluster)
    for_controller = controller_endpoints(parsed, cluster)
    advertised_for_controller = advertised_controller_endpoints(parsed, cluster, for_controller)
    # Wrong ones are better refused now than when the ports are known.
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
    """Have a node whose only bootstrap server is itself, by a loopback address, begin a quorum.

    Kafka's file for a first start says so; Kafka wants `kafka-storage format --standalone` too.
    With another address the node may be one of several whose disk was lost: it must not begin a
    second cluster under the address of the first.
    """
    addresses = {(each.host, each.port) for each in own}
    servers = cluster.bootstrap_servers
    if not (cluster.is_broker and cluster.is_controller and servers):
        return cluster
    is_own = addresses.issuperset(servers) and all(is_loopback(host) for host, _ in servers)
    return replace(cluster, is_standalone=True) if is_own else cluster


def _tell_unknown(names: list[str], given: Mapping[str, str]) -> None:
    ignored = sorted(name for name in names if name in IGNORED_KEYS)
    if ignored:
        _log.info("Keys that are not needed here and are ignored: %s", ", ".join(ignored))
    for name in names:
        if name not in IGNORED_KEYS:
            _log.warning("%s=%s has no effect: %s", name, given[name], _unknown(name))


def _unknown(name: str) -> str:
    """Why a key means nothing, with the one that is perhaps meant."""
    import difflib

    close = difflib.get_close_matches(
        name, [*(key.name for key in BROKER_KEYS), *IGNORED_KEYS], n=1, cutoff=0.85
    )
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"this broker does not know the key{hint}"
