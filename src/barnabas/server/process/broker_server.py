"""Broker role of a node (Kafka's BrokerServer).

This role owns the logs, replicas, coordinators and client listeners, and it registers the broker.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_config import GroupCoordinatorConfig
from barnabas.coordinator.group.group_coordinator import GroupCoordinator, ShareServices
from barnabas.coordinator.runtime.runtime_dependencies import RuntimeDependencies
from barnabas.coordinator.share.config import ShareCoordinatorConfig
from barnabas.coordinator.transaction.config import TransactionConfig
from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from barnabas.metadata.metadata_version import has_cordoned_directories
from barnabas.metadata.partition_registration import DIRECTORY_LOST
from barnabas.replication.config import FETCH_SESSION_EVICTION_MS, ReplicationConfig
from barnabas.replication.links.source_offsets import SOURCE_REMAINS
from barnabas.replication.log_dir_moves import LogDirMoves
from barnabas.replication.replica_manager import ReplicaManager, ReplicationDependencies
from barnabas.replication.replica_metrics import ReplicaMetrics
from barnabas.replication.requests.fetch_session_cache import FetchSessionCache
from barnabas.server.cluster.lost_leaders import LostLeaders
from barnabas.server.configs.described_configs import DescribedConfigs
from barnabas.server.configs.dynamic_config import TopicConfigs, subscribe_to_dynamic_keys
from barnabas.server.configs.endpoints import advertised_endpoints
from barnabas.server.controller_access.auto_topics import AutoTopics, InternalStreamsTopics
from barnabas.server.controller_access.broker_requests import (
    DirectoryAssignments,
    ForwardedAlterPartition,
    ProducerIds,
)
from barnabas.server.controller_access.registration import Registrant, Registration, ShutdownLimits
from barnabas.server.conversion.conversion_queue import ConversionQueue
from barnabas.server.dispatch.served_apis import served_apis
from barnabas.server.handlers.dependencies import BrokerDependencies, HandlerTable
from barnabas.server.links.link_dependencies import LinkDependencies
from barnabas.server.links.link_manager import LinkManager
from barnabas.server.peers.latest_offsets import LatestOffsets
from barnabas.server.peers.markers import MarkerWriter, NetworkMarkerSender
from barnabas.server.peers.peer_queues import PeerDependencies
from barnabas.server.peers.transaction_verification import TransactionVerification
from barnabas.server.process.coordinators import make_group_settings, make_share_coordinator
from barnabas.server.process.metadata_follower import MetadataFollower
from barnabas.server.process.observation import make_telemetry
from barnabas.server.process.peer_channels import make_peer_channels
from barnabas.server.share.dead_letter_writer import DeadLetterWriter
from barnabas.server.share.group_settings import DeadLetterSettings, ShareGroupSettings
from barnabas.server.share.persister import Persister
from barnabas.server.share.share_partitions import ShareDependencies, SharePartitions
from barnabas.server.startup.node_failure import (
    describe_directory_failure,
    last_directory_failure,
    metadata_failure,
)
from barnabas.server.startup.tier_check import missing_tier
from barnabas.storage.config import storage_config
from barnabas.storage.files.metadata_files import previous_broker_epoch
from barnabas.storage.manager.log_manager import LogManager
from barnabas.storage.remote_keys import SYSTEM_ENABLE

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.network.connection import Connection
    from barnabas.runtime.clock import Clock
    from barnabas.server.configs.endpoints import Endpoint
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.listeners.listener import Listener
    from barnabas.server.process.shared_server import SharedServer
    from barnabas.server.process.tiered_storage import TieredStorage
    from barnabas.storage.files.log_directory import LogDirectory
    from barnabas.storage.topic_partition import TopicIdPartition


_log = logging.getLogger(__name__)

# A stop waits for checkpoints that are being written: the delay between checks, and their number.
STOP_RETRY_MS = 5.0
STOP_TRIES = 100
# How long a stop waits for pending responses and for clients that read slowly.
DRAIN_MS_MAX = 1_500.0
# Limit of a write to __transaction_state: request.timeout.ms of Kafka's brokers.
_TRANSACTION_WRITE_MS_MAX = 30_000
# Limits of a controlled shutdown in a cluster where other brokers can take over the partitions.
_SHUTDOWN_IN_CLUSTER = ShutdownLimits(ms_max=30_000, silence_ms_max=2_000, retry_ms=50)


class BrokerServer:
    """The broker role of a node. It serves requests once the controller has unfenced the broker."""

    def __init__(
        self,
        shared: SharedServer,
        forwarding: ControllerAccess,
        heartbeats: ControllerAccess,
        on_serving: Callable[[], None],
    ) -> None:
        """Create the parts of the broker, bind its listeners and subscribe to metadata images.

        Args:
            forwarding: access to the active controller for requests.
            heartbeats: separate access for heartbeats, which must not wait behind other requests.
            on_serving: called once, when the broker begins to serve requests.

        Raises:
            OSError: an address cannot be bound.
            ConfigError: an advertised endpoint is an address that clients cannot connect to.
        """
        self._shared = shared
        self._forwarding = forwarding
        self._on_serving = on_serving
        self._config = shared.config
        self._runtime = shared.runtime
        self._is_alone = shared.configuration.cluster.is_alone
        # Listeners for clients and brokers, in the order of the configuration.
        self.listeners: list[Listener] = []
        # Delayed requests for leaders that may be dead.
        self.lost_leaders = LostLeaders(self._runtime.clock, shared.wheel)
        self._create_replicas()
        subscribe_to_dynamic_keys(shared.dynamic, self.logs, self.replicas, shared.connections)
        self.dependencies = self._make_dependencies()
        # Endpoints with the real ports, in the order of the configuration.
        self.bound: list[Endpoint] = []
        self._bind()
        self.registration = self._make_registration(heartbeats)
        # Broker epoch of the registration, which is a metadata offset. The logs are opened once the
        # image reaches this offset. None if the broker does not wait for the offset.
        self._awaited_epoch: int | None = None
        shared.publisher.add_listener(self._on_image)

    def start_alone(self) -> None:
        """Open the logs, then register. The local metadata log is already replayed completely."""
        self._open_logs(lambda: self.registration.start(self.logs.previous_broker_epoch))

    def start_in_cluster(self) -> None:
        """Register with the controller. The logs open once the image has the registration."""
        disk = self._runtime.disk
        paths = [each.path for each in self._shared.directories.logs]
        self.registration.start(previous_broker_epoch(disk, paths))

    def awaits(self) -> str:
        """Return the event that this broker waits for, as text for the operator."""
        controller = self._shared.quorum.core.leader_and_epoch.leader_id
        if self.registration.epoch < 0:
            refusal = self.registration.last_refusal
            why = f", which responds with {refusal.name}" if refusal else ""
            return f"waiting for controller {controller} to register this broker{why}"
        if self._awaited_epoch is not None:
            known = self._shared.cluster.image.provenance.offset
            return f"waiting for the metadata up to offset {self._awaited_epoch}; {known} is known"
        if not self.follower.logs_open:
            return f"opening the logs; {len(self.logs.logs)} are open"
        return f"waiting for controller {controller} to unfence this broker, which is registered"

    def _on_registered(self, epoch: int) -> None:
        if self.follower.logs_open:
            # The broker was unregistered while it ran, and has registered again.
            self.registration.begin_heartbeats()
            return
        self._awaited_epoch = epoch
        self._maybe_open_logs()

    def _on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        # Before the follower: clients must not write to the leader of a new mirror.
        self.links.on_image(image)
        self.follower.on_image(delta, image)
        if self.tiering is not None:
            self.tiering.metadata.on_image()
        self.lost_leaders.on_change(delta)
        if delta.feature_changes and not image.features.has_share_groups:
            self.shares.clear()
        self._maybe_open_logs()
        own_id = self._shared.node_id
        if own_id in delta.broker_changes and own_id not in image.brokers:
            self.registration.on_unregistered()
        if any(
            broker is not None and broker.is_leaving and broker.id != own_id
            for broker in delta.broker_changes.values()
        ):
            # The controller ends the shutdown of that broker once the heartbeats show that every
            # other broker has replayed the new leaders. Report the offset immediately.
            self.registration.heartbeat_now()

    def _maybe_open_logs(self) -> None:
        awaited = self._awaited_epoch
        if awaited is not None and self._shared.cluster.image.provenance.offset >= awaited:
            self._awaited_epoch = None
            _log.info("Opening the logs: metadata_offset=%d", awaited)
            self._open_logs(self.registration.begin_heartbeats)

    def _open_logs(self, on_open: Callable[[], None]) -> None:
        """Open the logs, unless a topic needs a remote tier that this broker does not have."""
        image = self._shared.cluster.image
        failure = missing_tier(image, self._shared.node_id) if self.tiering is None else None
        if failure is None:
            self.follower.open_logs(on_open)
        else:
            self._shared.fail(failure)

    def drain(self, on_drained: Callable[[], None]) -> None:
        """Stop reading requests. Call `on_drained` after pending responses or a timeout."""
        for listener in self.listeners:
            listener.drain()
        self.replicas.complete_delayed_fetches()
        self.groups.runtime.shutdown()
        self.transactions.runtime.shutdown()
        self.share_coordinator.runtime.shutdown()
        self._await_drained(on_drained, self._runtime.clock.monotonic_ms() + DRAIN_MS_MAX)

    def _await_drained(self, on_drained: Callable[[], None], deadline_ms: float) -> None:
        timer, now_ms = self._runtime.timer, self._runtime.clock.monotonic_ms()
        if any(map(len, self.listeners)) and now_ms < deadline_ms:
            timer.call_later(STOP_RETRY_MS, lambda: self._await_drained(on_drained, deadline_ms))
        else:
            on_drained()

    def leave(self, on_left: Callable[[], None]) -> None:
        """Run the controlled shutdown, if it is enabled: the controller elects other leaders."""
        self.replicas.followed.begin_shutdown()
        if self._config.boolean("controlled.shutdown.enable"):
            self.registration.shut_down(on_left)
        else:
            on_left()

    def close(self, on_closed: Callable[[], None]) -> None:
        """Stop the broker. Call `on_closed` once no checkpoint of the logs is being written."""
        for listener in self.listeners:
            listener.close()
        self.registration.stop()
        self._shared.cluster.backlog.close()
        self.links.close()
        self.replicas.shutdown()
        if self.tiering is None:
            self._await_checkpoints(on_closed, STOP_TRIES)
        else:
            self.tiering.close(lambda: self._await_checkpoints(on_closed, STOP_TRIES))

    def _await_checkpoints(self, on_closed: Callable[[], None], tries: int) -> None:
        if tries and self.logs.is_writing_checkpoints:
            self._runtime.timer.call_later(
                STOP_RETRY_MS, lambda: self._await_checkpoints(on_closed, tries - 1)
            )
        else:
            on_closed()

    def close_logs(self) -> None:
        """Close the logs and write the clean-shutdown file. This is the last step of a stop."""
        self.logs.shutdown(self.registration.epoch)

    def _broker_epoch(self) -> int:
        return self.registration.epoch

    def _create_replicas(self) -> None:
        """Create the logs, replicas and coordinators, and the follower that updates them."""
        shared, runtime, config = self._shared, self._runtime, self._config
        node_id = shared.node_id
        configs = TopicConfigs(config)
        self.logs = LogManager(
            shared.directories.logs,
            storage_config(config),
            shared.log_dependencies,
            self._on_directory_failed,
            shared.directories.offline_paths,
        )
        sender = ForwardedAlterPartition(
            node_id, self._broker_epoch, self._forwarding, runtime.timer
        )
        self._conversions = ConversionQueue(runtime.timer, runtime.executor)
        channels = make_peer_channels(shared, self.lost_leaders)
        self._peers = PeerDependencies(
            node_id, shared.cluster, runtime.clock, runtime.timer, channels
        )
        self._auto_topics = AutoTopics(
            config, shared.cluster, self._forwarding, is_alone=self._is_alone
        )
        # The remote tier. None without one.
        self.tiering = self._make_tiering()
        self.replicas = ReplicaManager(
            node_id,
            config.build(ReplicationConfig),
            self.logs,
            ReplicationDependencies(
                shared.wheel,
                runtime.clock,
                sender,
                ReplicaMetrics(),
                configs.of,
                channels,
                self._broker_epoch,
                None if self._is_alone else self._report_lost_replica,
                self._conversions,
                None if self.tiering is None else self.tiering.replication,
            ),
        )
        self._assignments = DirectoryAssignments(
            node_id, self._broker_epoch, self._forwarding, runtime.timer, shared.cluster, self.logs
        )
        self._create_share_coordinator()
        self._create_groups()
        self._create_transactions()
        self.links = self._make_links()
        self._create_follower(configs)

    def _create_follower(self, configs: TopicConfigs) -> None:
        """Create the follower of the metadata, and subscribe to its changes."""
        shared, assignments = self._shared, self._assignments
        self.follower = MetadataFollower(
            shared.cluster,
            shared.dynamic,
            configs,
            self.logs,
            self.replicas,
            self.groups,
            self.transactions.runtime,
            self.share_coordinator.runtime,
        )
        self.follower.on_deleted.append(
            lambda topics: self.share_coordinator.on_topics_deleted(frozenset(topics.values()))
        )
        self._moves = LogDirMoves(self.replicas, self.logs, assignments, shared.log_dependencies)
        self.follower.on_changes += [
            assignments.on_changes,
            self._moves.on_changes,
            self.shares.on_changes,
            self.links.on_changes,
        ]
        if self.tiering is not None:
            self.tiering.follow(self.follower)

    def _make_tiering(self) -> TieredStorage | None:
        """Open the remote tier; None if the broker has none."""
        if not self._config.boolean(SYSTEM_ENABLE):
            return None
        # Imported only on brokers with a remote tier.
        from barnabas.server.process.tiered_storage import TieredStorage

        return TieredStorage(
            self._shared,
            self._peers,
            self._auto_topics,
            self._conversions,
            self.logs,
            lambda: self.replicas,
        )

    def _make_links(self) -> LinkManager:
        """Create the links to other clusters. They begin with the metadata."""
        shared = self._shared
        return LinkManager(
            LinkDependencies(
                node_id=shared.node_id,
                cluster_id=shared.cluster_id,
                config=self._config.build(ReplicationConfig),
                runtime=self._runtime,
                wheel=shared.wheel,
                cluster=shared.cluster,
                replicas=self.replicas,
                groups=self.groups,
                latest=self._latest_offsets,
                remains=LatestOffsets(self.replicas, self._peers, SOURCE_REMAINS),
                auto_topics=self._auto_topics,
                forwarding=self._forwarding,
            )
        )

    def _create_groups(self) -> None:
        """Create the group coordinator."""
        shared, runtime = self._shared, self._runtime
        config = self._config.build(GroupCoordinatorConfig)
        self._latest_offsets = LatestOffsets(self.replicas, self._peers)
        self.groups = GroupCoordinator(
            config,
            self._coordinator_dependencies(
                # The clock that expires committed offsets.
                self.logs.trusted_clock,
                config.offsets_commit_timeout_ms,
                config.offsets_topic_compression_codec,
            ),
            shared.cluster,
            runtime.rng,
            ShareServices(self.persister, self._latest_offsets),
            make_group_settings(self._config, shared.dynamic),
        )

    def _create_transactions(self) -> None:
        """Create the transaction coordinator, and the sender and writer of its markers."""
        shared, runtime = self._shared, self._runtime
        self._producer_ids = ProducerIds(shared.node_id, self._broker_epoch, self._forwarding)
        self._marker_writer = MarkerWriter(self.replicas, self.groups, runtime.clock)
        self.marker_sender = NetworkMarkerSender(self._marker_writer, self._peers)
        self.transactions = TransactionCoordinator(
            self._config.build(TransactionConfig),
            self._coordinator_dependencies(runtime.clock, _TRANSACTION_WRITE_MS_MAX),
            lambda: shared.cluster.image.features.transaction_version,
            self._producer_ids.next_id,
            self.marker_sender,
        )
        self._verification = TransactionVerification(self.replicas, self.transactions, self._peers)

    def _create_share_coordinator(self) -> None:
        """Create the share coordinator, and the access to all of them."""
        shared, runtime = self._shared, self._runtime
        config = self._config.build(ShareCoordinatorConfig)
        self.share_coordinator = make_share_coordinator(
            config,
            self._coordinator_dependencies(
                runtime.clock,
                config.share_coordinator_write_timeout_ms,
                config.share_coordinator_state_topic_compression_codec,
            ),
            shared.cluster,
            self.replicas,
        )
        self.persister = Persister(self.share_coordinator, self._auto_topics, self._peers)
        self.shares = SharePartitions(
            ShareDependencies(
                replicas=self.replicas,
                persister=self.persister,
                settings=ShareGroupSettings(self._config, shared.cluster),
                dead_letters=DeadLetterWriter(
                    DeadLetterSettings(shared.dynamic, shared.cluster),
                    self.replicas,
                    self._forwarding,
                    self._conversions,
                    self._peers,
                ),
                conversions=self._conversions,
                clock=runtime.clock,
                wheel=shared.wheel,
            ),
            self._config.integer("group.share.max.share.sessions"),
            lambda: shared.cluster.image.topics.partition_count,
        )

    def _coordinator_dependencies(
        self, clock: Clock, write_timeout_ms: int, compression: int = 0
    ) -> RuntimeDependencies:
        """Return the dependencies of the runtime of one coordinator."""
        return RuntimeDependencies(
            log=self.replicas,
            clock=clock,
            timer=self._runtime.timer,
            wheel=self._shared.wheel,
            executor=self._runtime.executor,
            write_timeout_ms=write_timeout_ms,
            shares_batches=True,
            compression=compression,
        )

    def _report_lost_replica(self, where: TopicIdPartition) -> None:
        """Report a damaged replica of this broker to the controller as lost."""
        self._assignments.assign(where, DIRECTORY_LOST, lambda _: None)

    def _bind(self) -> None:
        """Listen on every endpoint. Connections are accepted but not read until `_serve`."""
        shared = self._shared
        handlers = HandlerTable(self.dependencies, shared.statistics)
        for endpoint in shared.configuration.endpoints:
            listener = shared.make_listener(endpoint, shared.connections, handlers.find)
            self.bound.append(listener.bind(shared.sockets.of(endpoint.name)))
            self.listeners.append(listener)
            listener.on_gone = partial(self._on_client_gone, listener.name)

    def _on_client_gone(self, listener_name: str, connection: Connection) -> None:
        """End the share sessions of a client whose connection has closed."""
        self.shares.sessions.on_disconnected((listener_name, connection.id))

    def _make_dependencies(self) -> BrokerDependencies:
        shared, runtime, config = self._shared, self._runtime, self._config
        telemetry = make_telemetry(shared)
        return BrokerDependencies(
            node_id=shared.node_id,
            cluster_id=shared.cluster_id,
            config=config,
            dynamic_config=shared.dynamic,
            clock=runtime.clock,
            cluster=shared.cluster,
            forwarding=self._forwarding,
            described_configs=DescribedConfigs(
                shared.configuration, shared.dynamic, shared.cluster
            ),
            quorum=shared.quorum,
            quotas=shared.quotas,
            served=served_apis(
                has_telemetry=telemetry is not None,
                has_unstable=config.boolean("unstable.api.versions.enable"),
            ),
            sockets=shared.sockets,
            guard=None if shared.authorizer is None else shared.authorizer.broker_guard(),
            find_acls=None if shared.authorizer is None else shared.authorizer.find_acls,
            alters_any_broker=False,
            logs=self.logs,
            disk=runtime.disk,
            log_dir_moves=self._moves,
            replicas=self.replicas,
            fetch_sessions=FetchSessionCache(
                config.integer("max.incremental.fetch.session.cache.slots"),
                FETCH_SESSION_EVICTION_MS,
                runtime.clock,
                runtime.rng,
                self.replicas.idle_partitions,
                lambda: shared.cluster.image.topics.partition_count,
            ),
            auto_topics=self._auto_topics,
            streams_topics=InternalStreamsTopics(self._forwarding, self._runtime.clock),
            lost_leaders=self.lost_leaders,
            groups=self.groups,
            transactions=self.transactions,
            share_coordinator=self.share_coordinator,
            persister=self.persister,
            shares=self.shares,
            marker_writer=self._marker_writer,
            marker_sender=self.marker_sender,
            verification=self._verification,
            producer_ids=self._producer_ids,
            conversions=self._conversions,
            rng=runtime.rng,
            telemetry=telemetry,
        )

    @property
    def advertised(self) -> list[Endpoint]:
        """Endpoints that the broker advertises to clients, in the order of the listeners."""
        return advertised_endpoints(self._config, self.bound)

    def _make_registration(self, heartbeats: ControllerAccess) -> Registration:
        shared, config = self._shared, self._config
        registrant = Registrant(
            node_id=shared.node_id,
            cluster_id=shared.cluster_id,
            incarnation_id=self._runtime.rng.uuid(),
            endpoints=self.advertised,
            rack=config.optional_string("broker.rack"),
            directories=[each.id for each in shared.directories.logs if each.is_online],
            heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
            offline_directories=lambda: self.logs.offline_directory_ids,
            cordoned_directories=self._cordoned_directories,
            shutdown=ShutdownLimits() if shared.configuration.is_single else _SHUTDOWN_IN_CLUSTER,
        )
        return Registration(
            registrant,
            heartbeats,
            self._runtime.timer,
            self._applied_offset,
            self._serve,
            None if self._is_alone else self._on_registered,
        )

    def _cordoned_directories(self) -> list[bytes] | None:
        """Return the ids of cordoned directories; None if controllers may not know the field."""
        level = self._shared.cluster.image.features.metadata_version
        return self.logs.cordoned_directory_ids if has_cordoned_directories(level) else None

    def _applied_offset(self) -> int:
        """Return the offset of the last metadata record that this broker has applied."""
        if len(self._shared.cluster.backlog):
            return self.follower.applied_offset
        return self._shared.cluster.image.provenance.offset

    def _serve(self) -> None:
        """Begin to serve requests: the controller has unfenced this broker."""
        self.replicas.start()
        self.logs.start_tasks()
        if self.tiering is not None:
            self.tiering.start()
        for listener in self.listeners:
            listener.serve()
        self._on_serving()

    def _on_directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Stop the node if it cannot work without the directory; else take its partitions offline.

        Requests for partitions of an offline directory get KAFKA_STORAGE_ERROR.
        """
        path = directory.path
        if directory is self._shared.directories.metadata:
            self._shared.fail(metadata_failure(path, error, self._runtime.disk))
        elif any(each.is_online for each in self.logs.directories):
            _log.error("%s", describe_directory_failure(path, error, self._runtime.disk))
            self.registration.heartbeat_now()
        else:
            self._shared.fail(last_directory_failure(path, error, self._runtime.disk))
        self.replicas.on_directory_failed(path)
        self._moves.on_directory_failed()
