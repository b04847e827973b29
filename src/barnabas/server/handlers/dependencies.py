"""Handlers of a node, each created at the first request for its API, and their dependencies."""

from __future__ import annotations

import importlib
from inspect import signature
from typing import TYPE_CHECKING, Any

import msgspec

from barnabas.protocol.api_keys import api_row, request_class, response_class
from barnabas.protocol.api_table import ApiKey
from barnabas.server.dispatch.dispatcher import Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.share.share_coordinator import ShareCoordinator
    from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from barnabas.metadata.acls import AclsImage
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.replication.log_dir_moves import LogDirMoves
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.replication.requests.fetch_session_cache import FetchSessionCache
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.cluster.lost_leaders import LostLeaders
    from barnabas.server.configs.described_configs import DescribedConfigs
    from barnabas.server.configs.dynamic_config import DynamicBrokerConfig
    from barnabas.server.controller_access.auto_topics import AutoTopics, InternalStreamsTopics
    from barnabas.server.controller_access.broker_requests import ProducerIds
    from barnabas.server.controller_access.controller_access import ControllerAccess, QuorumApi
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import Handle
    from barnabas.server.dispatch.request_statistics import RequestStatistics
    from barnabas.server.dispatch.served_apis import ServedApi
    from barnabas.server.listeners.node_sockets import NodeSockets
    from barnabas.server.metrics.client_telemetry import ClientTelemetry
    from barnabas.server.peers.markers import MarkerWriter, NetworkMarkerSender
    from barnabas.server.peers.transaction_verification import TransactionVerification
    from barnabas.server.quorum.broker_watch import BrokerWatch
    from barnabas.server.quotas.client_quotas import ClientQuotas
    from barnabas.server.security.authorizer.guard import Guard
    from barnabas.server.share.persister import Persister
    from barnabas.server.share.share_partitions import SharePartitions
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.manager.log_manager import LogManager


class NodeDependencies(msgspec.Struct):
    """Dependencies of the handlers of all listeners. A handler gets those that it names."""

    node_id: int
    cluster_id: str
    # Configuration at the start. `dynamic_config` has the current one.
    config: ParsedConfig
    dynamic_config: DynamicBrokerConfig
    clock: Clock
    cluster: ClusterView
    # Access to the active controller: over the network, or to the controller of this process.
    forwarding: ControllerAccess
    described_configs: DescribedConfigs
    quorum: RaftDriver
    quotas: ClientQuotas
    # Served APIs by API key.
    served: Mapping[int, ServedApi]
    # Checks requests before their handlers. None if every client may do everything.
    guard: Guard | None
    # The access control entries; None without an authorizer.
    find_acls: Callable[[], AclsImage] | None
    # Whether configurations of other brokers can be altered here, as on controllers.
    alters_any_broker: bool
    # The sockets of each listener, with their key stores.
    sockets: NodeSockets


class BrokerDependencies(NodeDependencies):
    """Dependencies of the handlers of a broker's listeners."""

    logs: LogManager
    disk: Disk
    log_dir_moves: LogDirMoves
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    auto_topics: AutoTopics
    # Creates the internal topics of streams groups.
    streams_topics: InternalStreamsTopics
    lost_leaders: LostLeaders
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    share_coordinator: ShareCoordinator
    persister: Persister
    shares: SharePartitions
    marker_writer: MarkerWriter
    marker_sender: NetworkMarkerSender
    verification: TransactionVerification
    producer_ids: ProducerIds
    conversions: ConversionQueue
    rng: Rng
    # None if metrics from clients are not collected.
    telemetry: ClientTelemetry | None


class ControllerListenerDependencies(NodeDependencies):
    """Dependencies of a controller's handlers. `forwarding` is the controller of this process."""

    # APIs of the metadata quorum.
    raft: QuorumApi
    # Tracks the heartbeat connection of each broker.
    watch: BrokerWatch
    # Returns versions, request class, handler and statistics of an API; None if not served.
    find: Callable[[int], Entry | None]


class HandlerTable:
    """Handlers by API key. A handler is imported and created at the first request for its API."""

    __slots__ = ("_dependencies", "_ready", "_statistics")

    def __init__(self, dependencies: NodeDependencies, statistics: RequestStatistics) -> None:
        """Create a table without handlers.

        Args:
            dependencies: the dependencies of the handlers.
            statistics: statistics of the whole process. A combined broker and controller has two
                tables.
        """
        self._dependencies = dependencies
        # Entries of the APIs that have had a request, by API key.
        self._ready: dict[int, Entry] = {}
        self._statistics = statistics

    def find(self, api_key: int) -> Entry | None:
        """Return versions, request class, handler and statistics of an API; None if not served."""
        entry = self._ready.get(api_key)
        if entry is None:
            api = self._dependencies.served.get(api_key)
            if api is None:
                return None
            module = importlib.import_module(f"{__package__}.{api.module}")
            handle = make_handler(module, ApiKey(api_key), api.function, self._dependencies)
            guard = self._dependencies.guard
            if guard is not None:
                handle = guard.wrap(api_key, handle)
            statistics = self._statistics.of(
                api_key, api_row(api_key).name, api.last_version, response_class(api_key)
            )
            entry = Entry(
                api.first_version,
                api.last_version,
                request_class(api_key),
                handle,
                statistics,
                getattr(module, api.size_refusal) if api.size_refusal else None,
            )
            self._ready[api_key] = entry
        return entry


def make_handler(
    module: ModuleType, key: ApiKey, function: str, dependencies: NodeDependencies
) -> Handle:
    """Create the handler of an API, and give it the dependencies that its parameters name.

    Args:
        module: the module of the handler.
        key: the API.
        function: the name of the function in the module; empty for the name of the API.
        dependencies: all dependencies of the node.
    """
    create = find_creator(module, key, function)
    named = {name: getattr(dependencies, name) for name in signature(create).parameters}
    created = create(**named)
    is_class = isinstance(create, type)
    handle: Handle = getattr(created, f"handle_{key.name.lower()}") if is_class else created
    return handle


def find_creator(module: ModuleType, key: ApiKey, function: str = "") -> Callable[..., Any]:
    """Return what creates the handler of an API.

    A module has a function that returns the handler, or a class of the API, for example
    `ProduceHandler` with the method `handle_produce`.
    """
    create: Callable[..., Any] = getattr(module, function or key.name.lower(), None) or getattr(
        module, f"{api_row(key).name}Handler"
    )
    return create
