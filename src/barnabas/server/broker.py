"""One node: the only place where its parts are joined, started and stopped.

Start: data directories locked and checked, listeners bound (connections wait), metadata quorum and
controller, first image, logs, replicas, registration; once the controller has let this broker in,
connections are served and it is `ready`. Stop: the reverse, ending with the mark of a clean stop.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from barnabas.controller.config import ControllerConfig
from barnabas.controller.controller import Controller, ControllerParts
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.driver import DriverParts
from barnabas.coordinator.group.group_coordinator import GroupCoordinator
from barnabas.metadata.broker_registration import ControllerRegistration
from barnabas.metadata.publisher import MetadataPublisher
from barnabas.metadata.snapshot_generator import SnapshotGenerator
from barnabas.network.connection import ConnectionDoors
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.raft.config import RaftConfig
from barnabas.raft.opening import RaftOpening, open_raft
from barnabas.replication.config import FETCH_SESSION_EVICTION_MS, ReplicationConfig
from barnabas.replication.fetch_session_cache import FetchSessionCache
from barnabas.replication.log_dir_moves import LogDirMoves
from barnabas.replication.replica_manager import ReplicaManager, ReplicationParts
from barnabas.replication.replica_metrics import ReplicaMetrics
from barnabas.server.alter_partition_sender import ForwardedAlterPartition
from barnabas.server.auto_topics import AutoTopics
from barnabas.server.cluster_view import ClusterView
from barnabas.server.config import log_directories
from barnabas.server.conversion_queue import ConversionQueue
from barnabas.server.described_configs import DescribedConfigs
from barnabas.server.directory_assignments import DirectoryAssignments
from barnabas.server.dispatch import Dispatcher, HandlerTable
from barnabas.server.dynamic_config import DynamicBrokerConfig
from barnabas.server.dynamic_parts import subscribe_parts
from barnabas.server.endpoint import parse_address
from barnabas.server.features import BOOTSTRAP_FEATURES, SUPPORTED_FEATURES
from barnabas.server.forwarding import Forwarding
from barnabas.server.listener import Listener
from barnabas.server.listeners import advertised_endpoints
from barnabas.server.log_directories import (
    DirectoryPaths,
    describe_directory_failure,
    open_data_directories,
)
from barnabas.server.metadata_follower import MetadataFollower
from barnabas.server.observation import RUNNING, STOPPING, Observation, ObservedParts
from barnabas.server.parts import ServerParts
from barnabas.server.producer_ids import ProducerIds
from barnabas.server.quotas.client_quotas import ClientQuotas
from barnabas.server.quotas.connection_quotas import ConnectionQuotas
from barnabas.server.quotas.quota_follower import QuotaFollower
from barnabas.server.quotas.rate_quota import quota_windows
from barnabas.server.registration import Registrant, Registration
from barnabas.server.request import RequestServices
from barnabas.server.topic_configs import TopicConfigs
from barnabas.storage.config import storage_config
from barnabas.storage.doors import LogDoors
from barnabas.storage.log_manager import LogManager
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.raft.driver import RaftDriver
    from barnabas.runtime.loop import Runtime
    from barnabas.server.configuration import Configuration
    from barnabas.server.endpoint import Endpoint
    from barnabas.server.telemetry.client_telemetry import ClientTelemetry
    from barnabas.storage.log_directory import LogDirectory

_log = logging.getLogger(__name__)

# How long, and how often, a stop waits for checkpoints that are being written.
STOP_RETRY_MS = 5.0
STOP_TRIES = 100
# How long a stop waits for answers that are due, and for peers that read slowly.
DRAIN_MS_MAX = 1_500.0


class Broker:
    """A broker that is its own controller."""

    def __init__(
        self,
        configuration: Configuration,
        runtime: Runtime,
        on_ready: Callable[[str], None],
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Args:
        on_ready: told HOST:PORT once requests are answered.
        on_failed: told why the broker cannot go on; the process is to end.
        """
        self._configuration = configuration
        self._config = configuration.parsed
        self._runtime = runtime
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._cluster = ClusterView()
        self._dynamic = DynamicBrokerConfig(
            configuration.node_id, self._config, configuration.given
        )
        self._listeners: list[Listener] = []
        self._stopping = False
        # HOST:PORT of `metrics.listener`; None while there is none.
        self.metrics_address: str | None = None

    def start(self) -> None:
        """Begin; `on_ready` follows in a later turn.

        Raises:
            StorageError: a data directory is in use, another's, or cannot be opened.
            OSError: an address cannot be bound, a directory not be made.
            ConfigError: an endpoint that clients could not connect to.
        """
        runtime = self._runtime
        paths = DirectoryPaths(
            log_directories(self._config), self._config.optional_string("metadata.log.dir")
        )
        self._directories = open_data_directories(
            runtime.disk, paths, self._configuration.node_id, runtime.rng
        )
        self._wheel = TimingWheel(runtime.clock, runtime.timer)
        self._doors = LogDoors(
            runtime.disk,
            runtime.clock,
            runtime.executor,
            runtime.timer,
            runtime.rng,
            offload=runtime.offload,
        )
        raft_config = self._raft_config()
        self._quorum = self._open_quorum(raft_config)
        publisher = MetadataPublisher()
        self._controller = Controller(
            ControllerConfig(self._configuration.node_id, self._cluster_id, self._config),
            ControllerParts(self._quorum, publisher, runtime.rng, self._controller_registration()),
        )
        self._forwarding = Forwarding(self._controller)
        windows = quota_windows(self._config)
        self._quotas = ClientQuotas(runtime.clock, self._config)
        self._connections = ConnectionQuotas(
            runtime.clock, self._configuration.connections, windows
        )
        self._join_replicas()
        subscribe_parts(self._dynamic, self._logs, self._connections)
        self._bind()
        self._registration = self._make_registration()
        publisher.add_listener(self._follower.on_image)
        publisher.add_listener(QuotaFollower(self._quotas, self._connections).on_image)
        self._quorum.add_listener(publisher)
        self._quorum.add_listener(SnapshotGenerator(self._quorum, publisher, raft_config))
        self._quorum.add_listener(self._controller)
        self._controller.when_active(lambda: self._follower.open_logs(self._register))
        self._quorum.start()

    def _controller_registration(self) -> ControllerRegistration:
        """What the controller says of itself (KIP-919); it has no listener of its own."""
        return ControllerRegistration(
            self._configuration.node_id, self._runtime.rng.uuid(), {}, SUPPORTED_FEATURES
        )

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop serving, close every log, leave the mark of a clean stop, then call back."""
        if self._stopping:
            return
        self._stopping = True
        self._observation.state = STOPPING
        for listener in self._listeners:
            listener.drain()
        self._replicas.answer_waiting_fetches()
        self._groups.driver.shutdown()
        self._drain(on_stopped, self._runtime.clock.monotonic_ms() + DRAIN_MS_MAX)

    def _drain(self, on_stopped: Callable[[], None], deadline_ms: float) -> None:
        """Give what is in flight its time to be answered, then stop all parts."""
        timer, now_ms = self._runtime.timer, self._runtime.clock.monotonic_ms()
        if any(map(len, self._listeners)) and now_ms < deadline_ms:
            timer.call_later(STOP_RETRY_MS, lambda: self._drain(on_stopped, deadline_ms))
            return
        if self._config.boolean("controlled.shutdown.enable"):
            self._registration.shut_down(lambda: self._close(on_stopped))
        else:
            self._close(on_stopped)

    def _close(self, on_stopped: Callable[[], None]) -> None:
        """The controller knows: nothing is asked of this broker any more."""
        for listener in self._listeners:
            listener.close()
        self._observation.close()
        self._registration.stop()
        self._replicas.shutdown()
        self._finish_stop(on_stopped, STOP_TRIES)

    def _finish_stop(self, on_stopped: Callable[[], None], tries: int) -> None:
        """Close the logs once nobody else writes their checkpoints."""
        if tries and self._logs.is_writing_checkpoints:
            self._runtime.timer.call_later(
                STOP_RETRY_MS, lambda: self._finish_stop(on_stopped, tries - 1)
            )
            return
        self._quorum.shutdown()
        self._logs.shutdown(self._registration.epoch)
        self._directories.close()
        on_stopped()

    @property
    def _cluster_id(self) -> str:
        return self._directories.cluster_id

    def _broker_epoch(self) -> int:
        return self._registration.epoch

    def _raft_config(self) -> RaftConfig:
        config, node_id = self._config, self._configuration.node_id
        return RaftConfig(
            node_id=node_id,
            voters=(node_id,),
            election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
            fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
            election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
            request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
            snapshot_record_bytes=config.integer("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_interval_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
            segment_bytes=config.integer("metadata.log.segment.bytes"),
            segment_ms=config.integer("metadata.log.segment.ms"),
            retention_bytes=config.integer("metadata.max.retention.bytes"),
        )

    def _open_quorum(self, raft_config: RaftConfig) -> RaftDriver:
        directory = self._directories.metadata.path
        opening = RaftOpening(
            directory, self._doors, self._runtime.rng, self._fail, BOOTSTRAP_FEATURES
        )
        return open_raft(raft_config, opening)

    def _join_replicas(self) -> None:
        """Logs, replicas and coordinators, and what brings them in line with the metadata."""
        runtime, config, node_id = self._runtime, self._config, self._configuration.node_id
        configs = TopicConfigs(config)
        self._logs = LogManager(
            self._directories.logs,
            storage_config(config),
            self._doors,
            self._on_directory_failed,
            self._directories.offline_paths,
        )
        sender = ForwardedAlterPartition(
            self._configuration.node_id, self._broker_epoch, self._forwarding, runtime.timer
        )
        self._replicas = ReplicaManager(
            self._configuration.node_id,
            config.build(ReplicationConfig),
            self._logs,
            ReplicationParts(self._wheel, runtime.clock, sender, ReplicaMetrics(), configs.of),
        )
        assignments = DirectoryAssignments(
            node_id, self._broker_epoch, self._forwarding, runtime.timer, self._cluster, self._logs
        )
        group_config = config.build(GroupCoordinatorConfig)
        self._groups = GroupCoordinator(
            group_config,
            DriverParts(
                self._replicas,
                runtime.clock,
                runtime.timer,
                self._wheel,
                group_config.offsets_commit_timeout_ms,
                group_config.offsets_topic_compression_codec,
            ),
            self._cluster,
            runtime.rng,
        )
        self._follower = MetadataFollower(
            self._cluster,
            self._dynamic,
            configs,
            self._logs,
            self._replicas,
            self._groups,
        )
        self._moves = LogDirMoves(self._replicas, self._logs, assignments, self._doors)
        self._follower.add_listener(assignments.on_changes)
        self._follower.add_listener(self._moves.on_changes)

    def _bind(self) -> None:
        """Listen on every endpoint; connections wait until `_serve`."""
        runtime = self._runtime
        parts = self._make_parts()
        handlers = HandlerTable(parts)
        doors = ConnectionDoors(runtime.clock, runtime.timer, new_receive_buffer())
        self._bound: list[Endpoint] = []
        for endpoint in self._configuration.endpoints:
            services = RequestServices(endpoint.name, runtime.clock, self._quotas)
            dispatcher = Dispatcher(handlers, services)
            listener = Listener(
                endpoint, self._config, doors, self._connections, dispatcher.on_request
            )
            self._bound.append(listener.bind(runtime.sockets))
            self._listeners.append(listener)
        observed = ObservedParts(
            handlers.statistics,
            self._listeners,
            self._controller,
            self._directories,
            self._doors.flush_times,
            self._logs.cleaner,
        )
        self._observation = Observation(runtime, parts, observed)
        address = self._config.optional_string("metrics.listener")
        host_and_port = parse_address(address) if address else None
        if host_and_port is not None:
            self.metrics_address = self._observation.listen(*host_and_port)

    def _make_parts(self) -> ServerParts:
        runtime, config, node_id = self._runtime, self._config, self._configuration.node_id
        return ServerParts(
            node_id=node_id,
            cluster_id=self._cluster_id,
            config=config,
            dynamic_config=self._dynamic,
            clock=runtime.clock,
            cluster=self._cluster,
            forwarding=self._forwarding,
            logs=self._logs,
            disk=runtime.disk,
            log_dir_moves=self._moves,
            replicas=self._replicas,
            fetch_sessions=FetchSessionCache(
                config.integer("max.incremental.fetch.session.cache.slots"),
                FETCH_SESSION_EVICTION_MS,
                runtime.clock,
                runtime.rng,
            ),
            auto_topics=AutoTopics(config, self._cluster, self._forwarding),
            groups=self._groups,
            producer_ids=ProducerIds(node_id, self._broker_epoch, self._forwarding),
            described_configs=DescribedConfigs(self._configuration, self._dynamic, self._cluster),
            quorum=self._quorum,
            quotas=self._quotas,
            conversions=ConversionQueue(runtime.timer),
            rng=runtime.rng,
            telemetry=self._make_telemetry(),
        )

    def _make_telemetry(self) -> ClientTelemetry | None:
        if self._config.string("barnabas.client.telemetry") == "none":
            return None
        from barnabas.server.telemetry.client_telemetry import ClientTelemetry
        from barnabas.server.telemetry.receiver import LoggingReceiver

        max_bytes = self._config.integer("telemetry.max.bytes")
        return ClientTelemetry(self._cluster, self._runtime.clock, max_bytes, LoggingReceiver())

    def _make_registration(self) -> Registration:
        config = self._config
        registrant = Registrant(
            node_id=self._configuration.node_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._runtime.rng.uuid(),
            endpoints=advertised_endpoints(config, self._bound),
            rack=config.optional_string("broker.rack"),
            directories=[each.id for each in self._directories.logs if each.is_online],
            heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
            offline_directories=lambda: self._logs.offline_directory_ids,
            cordoned_directories=lambda: self._logs.cordoned_directory_ids,
        )
        return Registration(
            registrant,
            self._forwarding,
            self._runtime.timer,
            lambda: self._cluster.image.provenance.offset,
            self._serve,
        )

    def _register(self) -> None:
        """The own controller is active, and the logs, with the last life's epoch, are open."""
        self._registration.start(self._logs.previous_broker_epoch)

    def _serve(self) -> None:
        """The controller has let this broker in: begin to answer."""
        self._replicas.start()
        self._logs.start_tasks()
        self._observation.state = RUNNING
        for listener in self._listeners:
            listener.serve()
        self._on_ready(self._bound[0].address)

    def _on_directory_failed(self, directory: LogDirectory, error: OSError) -> None:
        """Its partitions answer KAFKA_STORAGE_ERROR, and the others go on while they can."""
        _log.error("%s", describe_directory_failure(directory.path, error))
        self._replicas.on_directory_failed(directory.path)
        self._moves.on_directory_failed()
        if directory is self._directories.metadata or not any(
            each.is_online for each in self._logs.directories
        ):
            self._fail(error)
        else:
            self._registration.report_directories()

    def _fail(self, error: BaseException) -> None:
        """Nothing sound is left to do: the process has to end."""
        if not self._stopping:
            _log.critical("The broker cannot go on: %s", error)
            self._observation.failure = error
            self._on_failed(error)
