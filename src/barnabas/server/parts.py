"""The parts of a running node that request handlers are made of; its servers join them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.raft.driver import RaftDriver
    from barnabas.replication.fetch_session_cache import FetchSessionCache
    from barnabas.replication.log_dir_moves import LogDirMoves
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.disk import Disk
    from barnabas.runtime.rng import Rng
    from barnabas.server.auto_topics import AutoTopics
    from barnabas.server.broker_watch import BrokerWatch
    from barnabas.server.cluster_view import ClusterView
    from barnabas.server.controller_access import ControllerAccess
    from barnabas.server.conversion_queue import ConversionQueue
    from barnabas.server.described_configs import DescribedConfigs
    from barnabas.server.dynamic_config import DynamicBrokerConfig
    from barnabas.server.producer_ids import ProducerIds
    from barnabas.server.quorum_api import QuorumApi
    from barnabas.server.quotas.client_quotas import ClientQuotas
    from barnabas.server.request import Entry
    from barnabas.server.served_api import ServedApi
    from barnabas.server.telemetry.client_telemetry import ClientTelemetry
    from barnabas.settings.definition import ParsedConfig
    from barnabas.storage.log_manager import LogManager


class NodeParts(msgspec.Struct):
    """What handlers of every listener may use; a handler keeps the few that it does use."""

    node_id: int
    cluster_id: str
    # What the process was started with; `dynamic_config` has what holds now.
    config: ParsedConfig
    dynamic_config: DynamicBrokerConfig
    clock: Clock
    cluster: ClusterView
    # The way to the active controller: from a broker, or within the controller itself.
    forwarding: ControllerAccess
    described_configs: DescribedConfigs
    quorum: RaftDriver
    quotas: ClientQuotas
    # By API key.
    served: Mapping[int, ServedApi]
    # Whether configs of other brokers may be altered here: by controllers.
    alters_any_broker: bool


class ServerParts(NodeParts):
    """What handlers of a broker's listeners may use."""

    logs: LogManager
    disk: Disk
    log_dir_moves: LogDirMoves
    replicas: ReplicaManager
    fetch_sessions: FetchSessionCache
    auto_topics: AutoTopics
    groups: GroupCoordinator
    producer_ids: ProducerIds
    conversions: ConversionQueue
    rng: Rng
    # None where nobody takes the metrics that clients push.
    telemetry: ClientTelemetry | None


class ControllerListenerParts(NodeParts):
    """What handlers of a controller's listeners may use; `forwarding` is the controller itself."""

    # The quorum's own APIs.
    raft: QuorumApi
    # Which connection is which broker's.
    watch: BrokerWatch
    # The handler of an API, with its versions and counts; None if it is not served.
    find: Callable[[int], Entry | None]
