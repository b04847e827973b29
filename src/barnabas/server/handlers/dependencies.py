"""Dependencies of request handlers, which the node creates at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

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
    from barnabas.server.configs.dynamic.dynamic_config import DynamicBrokerConfig
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.controller_access.internal_streams_topics import InternalStreamsTopics
    from barnabas.server.controller_access.producer_ids import ProducerIds
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import Entry
    from barnabas.server.dispatch.served_api import ServedApi
    from barnabas.server.listeners.node_sockets import NodeSockets
    from barnabas.server.quorum.broker_watch import BrokerWatch
    from barnabas.server.quorum.quorum_api import QuorumApi
    from barnabas.server.quotas.client_quotas import ClientQuotas
    from barnabas.server.security.authorizer.guard import Guard
    from barnabas.server.share.persister import Persister
    from barnabas.server.share.share_partitions import SharePartitions
    from barnabas.server.telemetry.client_telemetry import ClientTelemetry
    from barnabas.server.transactions.marker_sender import NetworkMarkerSender
    from barnabas.server.transactions.marker_writer import MarkerWriter
    from barnabas.server.transactions.verification import TransactionVerification
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.manager.log_manager import LogManager


class NodeDependencies(msgspec.Struct):
    """Dependencies of the handlers of all listeners. A handler stores only those that it uses."""

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
