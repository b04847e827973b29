"""What a running node gives to its request handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
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
    from barnabas.server.controller_access.auto_topics import AutoTopics
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.controller_access.producer_ids import ProducerIds
    from barnabas.server.conversion.conversion_queue import ConversionQueue
    from barnabas.server.dispatch.request import Entry
    from barnabas.server.dispatch.served_api import ServedApi
    from barnabas.server.quorum.broker_watch import BrokerWatch
    from barnabas.server.quorum.quorum_api import QuorumApi
    from barnabas.server.quotas.client_quotas import ClientQuotas
    from barnabas.server.telemetry.client_telemetry import ClientTelemetry
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.manager.log_manager import LogManager


class NodeDependencies(msgspec.Struct):
    """What handlers of every listener may use. A handler keeps only what it uses."""

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
    # Whether configurations of other brokers can be altered here, as on controllers.
    alters_any_broker: bool


class BrokerDependencies(NodeDependencies):
    """What handlers of a broker's listeners may use."""

    logs: LogManager
    disk: Disk
    log_dir_moves: LogDirMoves
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    auto_topics: AutoTopics
    lost_leaders: LostLeaders
    groups: GroupCoordinator
    producer_ids: ProducerIds
    conversions: ConversionQueue
    rng: Rng
    # None if metrics from clients are not collected.
    telemetry: ClientTelemetry | None


class ControllerListenerDependencies(NodeDependencies):
    """What handlers of a controller's listeners may use. `forwarding` is the local controller."""

    # APIs of the metadata quorum.
    raft: QuorumApi
    # Tracks the heartbeat connection of each broker.
    watch: BrokerWatch
    # Returns versions, request class, handler and statistics of an API; None if not served.
    find: Callable[[int], Entry | None]
