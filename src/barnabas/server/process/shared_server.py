"""Components that a node has in every role (Kafka's SharedServer).

These are the data directories, access to the disk for the logs, and the replica of the metadata
quorum. The committed metadata updates the cluster view, the dynamic configuration and the quotas,
which broker and controller share.
"""

from __future__ import annotations

import errno
import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.metadata.configs_image import BROKER
from barnabas.metadata.credentials import SECRET_KEY
from barnabas.metadata.image import ElectionCounts
from barnabas.metadata.publishing import MetadataPublisher, SnapshotGenerator
from barnabas.network.connection_limits import ConnectionDependencies, FrameBudget
from barnabas.network.framed_protocol import new_receive_buffer
from barnabas.raft.config import RaftConfig
from barnabas.raft.driver.opening import RaftOpening, open_raft
from barnabas.raft.driver.quorum_status import has_contact
from barnabas.raft.election_state import UnprovenVoterFile
from barnabas.runtime.system_calls import limit_freed_memory
from barnabas.server.cluster.change_log import ChangeLog
from barnabas.server.cluster.cluster_view import Backlog, ClusterView
from barnabas.server.configs.config import (
    AuthorizerConfig,
    log_directories,
    metadata_directory,
    request_memory,
)
from barnabas.server.configs.dynamic_config import DynamicBrokerConfig
from barnabas.server.configs.tls_config import DYNAMIC_TLS_KEYS
from barnabas.server.dispatch.client_software import MissingFeatures
from barnabas.server.dispatch.dispatcher import Dispatcher
from barnabas.server.dispatch.request import RequestDependencies
from barnabas.server.dispatch.request_statistics import RequestStatistics
from barnabas.server.dispatch.slices import SliceQueue
from barnabas.server.listeners.listener import Listener
from barnabas.server.quotas.client_quotas import ClientQuotas, QuotaFollower
from barnabas.server.quotas.connection_quotas import ConnectionQuotas
from barnabas.server.quotas.rate import quota_windows
from barnabas.server.security.sasl.failure_log import FailureLog
from barnabas.server.startup.features import BOOTSTRAP_FEATURES
from barnabas.server.startup.log_directories import (
    DataDirectories,
    DirectoryPaths,
    open_data_directories,
)
from barnabas.server.startup.node_failure import NodeFailedError, metadata_failure
from barnabas.storage.errors import KafkaStorageError
from barnabas.storage.log_dependencies import LogDependencies
from barnabas.waiting.timing_wheel import TimingWheel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from barnabas.metadata.image import ClusterDelta, ClusterImage
    from barnabas.network.channel import ChannelDependencies
    from barnabas.raft.driver.raft_driver import RaftDriver
    from barnabas.raft.transport.channel_transport import ChannelTransport
    from barnabas.raft.transport.transport import RaftTransport
    from barnabas.raft.voter_set import VoterSet
    from barnabas.runtime.loop import Runtime
    from barnabas.sasl.client_login import ClientLogin
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.configs.endpoints import Endpoint
    from barnabas.server.controller_access.controller_access import QuorumApi
    from barnabas.server.controller_access.controller_channel import ControllerAddress
    from barnabas.server.dispatch.dispatcher import Entry
    from barnabas.server.listeners.node_sockets import NodeSockets
    from barnabas.server.security.authorizer.guard import NodeAuthorizer
    from barnabas.settings.definition import ParsedConfig


_log = logging.getLogger(__name__)

# Several requests with a batch of 1 MB per partition fit into the freed memory that the process
# keeps.
_KEPT_BYTES, _KEPT_BLOCK_BYTES = 8 << 20, 4 << 20


class SharedServer:
    """The components that the controller and the broker of a process share."""

    # The connections to other replicas of the metadata log; None without other nodes.
    transport: ChannelTransport | None = None

    def __init__(
        self,
        configuration: Configuration,
        runtime: Runtime,
        sockets: NodeSockets,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        """Open the data directories and the metadata log. Nothing runs yet.

        Args:
            sockets: the sockets of each listener.
            on_failed: called with the error when the node cannot continue. The process then has to
                end.

        Raises:
            StorageError: a data directory is in use, belongs to another node or cluster, or cannot
                be opened.
            OSError: a directory cannot be created.
            NodeFailedError: the disk of the metadata log failed.
        """
        self.configuration = configuration
        self.config = configuration.parsed
        self.node_id = configuration.node_id
        self.runtime = runtime
        self.sockets = sockets
        self._on_failed = on_failed
        # Whether the node is stopping. Set by `Node`, and never reset.
        self.is_stopping = False
        # Set once by `fail` and never cleared: the process ends.
        self.has_failed = False
        self.cluster = ClusterView(runtime.clock, Backlog(runtime.clock, runtime.timer, self.fail))
        self.dynamic = DynamicBrokerConfig(self.node_id, self.config, configuration.given)
        self.dynamic.subscribe(DYNAMIC_TLS_KEYS, self._read_key_stores)
        self.directories = self._open_directories()
        self.wheel = TimingWheel(runtime.clock, runtime.timer)
        self.log_dependencies = LogDependencies(
            runtime.disk,
            runtime.clock,
            runtime.executor,
            runtime.timer,
            runtime.rng,
            offload=runtime.offload,
        )
        limit_freed_memory(_KEPT_BYTES, _KEPT_BLOCK_BYTES)
        self.connection_dependencies = ConnectionDependencies(
            runtime.clock, runtime.timer, new_receive_buffer(), self._frame_budget()
        )
        self.statistics = RequestStatistics()
        self.missing_features = MissingFeatures()
        self.failed_logins = FailureLog(runtime.clock)
        self.slices = SliceQueue(runtime.clock, runtime.timer, runtime.watch)
        self.quotas = ClientQuotas(runtime.clock, self.config)
        self.connections = ConnectionQuotas(
            runtime.clock, configuration.connections, quota_windows(self.config)
        )
        # Whether the image has been up to date once, and the callbacks for this moment.
        self._is_loaded = False
        self._awaiting_metadata: list[Callable[[], None]] = []
        # The authorizer; None if every client may do everything.
        self.authorizer = self._make_authorizer()
        self._raft_config = _raft_config(configuration, self.directories, self.is_unproven_voter)
        # Dependencies of channels, by the listener that they connect to.
        self._channel_dependencies: dict[str, ChannelDependencies] = {}
        self.quorum = self._open_quorum()
        self.publisher = MetadataPublisher()
        self.publisher.add_listener(self._on_image)
        self.elections = ElectionCounts()
        self.publisher.add_listener(self.elections.on_image)
        self.changes = ChangeLog(self.node_id, lambda: self.quorum.core.is_leader)
        self.publisher.add_listener(self.changes.on_image)

    @property
    def cluster_id(self) -> str:
        """Cluster id from the meta.properties files of the data directories."""
        return self.directories.cluster_id

    @property
    def channels_to_controllers(self) -> ChannelDependencies:
        """Dependencies of channels to the controllers, with the login of this node."""
        return self.channels_to(self.configuration.cluster.controller_listeners[0])

    @property
    def channels_to_brokers(self) -> ChannelDependencies:
        """Dependencies of channels to brokers, with the login of this node."""
        return self.channels_to(self.configuration.inter_broker_listener or "PLAINTEXT")

    def channels_to(self, listener: str) -> ChannelDependencies:
        """Return the dependencies of channels to a listener, with the login of this node.

        Created at the first use.
        """
        found = self._channel_dependencies.get(listener)
        if found is None:
            from barnabas.network.channel import ChannelDependencies

            runtime, sockets = self.runtime, self.sockets.of(listener)
            found = self._channel_dependencies[listener] = ChannelDependencies(
                runtime.clock,
                runtime.timer,
                sockets,
                self.wheel,
                new_receive_buffer(),
                login=self._login(listener),
            )
        return found

    def _login(self, listener: str) -> ClientLogin | None:
        """Return the credentials of this node for a listener; None if it needs none."""
        settings = self.configuration.logins.get(listener)
        if settings is None:
            return None
        # Imported only for listeners with SASL.
        from barnabas.server.security.sasl.node_login import node_login

        return node_login(settings, self.runtime)

    @property
    def raft_rpc(self) -> QuorumApi:
        """API that serves the requests of other replicas of the metadata quorum."""
        from barnabas.raft.driver.rpc import RaftRpc

        return RaftRpc(self.quorum)

    def has_quorum_contact(self) -> bool:
        """Return whether this node has had contact with the metadata quorum recently."""
        quorum, now_ms = self.quorum, self.runtime.clock.monotonic_ms()
        return has_contact(quorum.core, quorum.config.fetch_timeout_ms, now_ms)

    def find_controller(self) -> ControllerAddress | None:
        """Return the address of the active controller, or None if it is this node or unknown."""
        from barnabas.server.controller_access.controller_channel import ControllerAddress

        found = self.quorum.leader_endpoint()
        return None if found is None or found[0] == self.node_id else ControllerAddress(*found)

    def follow_quorum(self) -> None:
        """Subscribe the publisher and the snapshot generator to the quorum, before it starts."""
        quota_follower = QuotaFollower(self.quotas, self.connections)
        self.publisher.add_listener(quota_follower.on_image)
        self.quorum.add_listener(self.publisher)
        self.quorum.add_listener(SnapshotGenerator(self.quorum, self.publisher, self._raft_config))

    def fail(self, error: BaseException) -> None:
        """Report a fatal error and end the node. Only the first call has an effect."""
        if self.has_failed:
            return
        self.has_failed = True
        # Log a traceback for unexpected errors.
        trace = None if isinstance(error, NodeFailedError) else error
        _log.critical("The node cannot continue: %s", error, exc_info=trace)
        # The node must not apply records that are committed in the rest of this turn.
        self.quorum.fail(error)
        self._on_failed(error)

    def close(self) -> None:
        """Release the locks of the data directories."""
        self.directories.close()

    def _open_quorum(self) -> RaftDriver:
        opening = RaftOpening(
            self.directories.metadata.path,
            self.log_dependencies,
            self.runtime.rng,
            self._on_quorum_failed,
            BOOTSTRAP_FEATURES,
            self._transport(),
            self._first_voters(),
        )
        try:
            return open_raft(self._raft_config, opening)
        except (OSError, KafkaStorageError) as error:
            raise self._metadata_failure(error) from error

    def _on_quorum_failed(self, error: BaseException) -> None:
        self.fail(self._metadata_failure(error))

    def _metadata_failure(self, error: BaseException) -> BaseException:
        return metadata_failure(self.directories.metadata.path, error, self.runtime.disk)

    def _on_image(self, delta: ClusterDelta, image: ClusterImage) -> None:
        self.cluster.update(image)
        if any(resource_type == BROKER for resource_type, _ in delta.config_changes):
            self.dynamic.apply_image(image)
            # Even without a changed value: files of key stores may have changed.
            self._read_key_stores(self.dynamic.current)
        if self._awaiting_metadata:
            self._check_loaded()

    def _read_key_stores(self, config: ParsedConfig) -> None:
        self.sockets.apply_config(config, self.dynamic.given)

    def _first_voters(self) -> VoterSet | None:
        """Return the first voter set of a dynamic quorum that this node founds alone, else None."""
        if not self.configuration.cluster.is_standalone:
            return None
        # Imported only for a standalone quorum.
        from barnabas.raft.voter_set import Address, Voter, VoterSet

        config = self._raft_config
        endpoints = tuple((name, Address(*at)) for name, at in config.advertised.items())
        return VoterSet([Voter(config.key, endpoints)])

    def make_listener(
        self, endpoint: Endpoint, connections: ConnectionQuotas, find: Callable[[int], Entry | None]
    ) -> Listener:
        """Return the listener of an endpoint. It is not bound yet.

        Args:
            endpoint: name, address and protocol.
            connections: limits of the number of connections.
            find: returns the entry of an API key in the table of served APIs.
        """
        dependencies = RequestDependencies(
            endpoint.name,
            self.runtime.clock,
            self.quotas,
            self.runtime.watch,
            self.slices,
            self.missing_features,
        )
        dependencies.access_control = self.authorizer
        settings = self.configuration.sasl.get(endpoint.name)
        if settings is None:
            return Listener(
                endpoint,
                self.config,
                self.connection_dependencies,
                connections,
                Dispatcher(find, dependencies).on_request,
                self.sockets.principals.get(endpoint.name),
            )
        # Imported only for listeners with SASL.
        from barnabas.server.security.sasl.gate import SaslGate
        from barnabas.server.security.sasl.mechanisms import ImageUsers, Mechanisms, TokenUsers

        secret_key = self.config.optional_string(SECRET_KEY) or ""
        users = ImageUsers(
            self.cluster, self.cluster_id, TokenUsers(secret_key, self.runtime.clock)
        )
        mechanisms = Mechanisms(users, self.runtime).offered(settings)
        gate = SaslGate(
            settings, mechanisms, self.runtime.timer, find, dependencies, self.failed_logins
        )
        listener = Listener(
            endpoint, self.config, self.connection_dependencies, connections, gate.on_request
        )
        listener.on_admitted = gate.on_admitted
        return listener

    def _make_authorizer(self) -> NodeAuthorizer | None:
        config = AuthorizerConfig.of(self.config)
        if config is None:
            return None
        # Imported only with an authorizer.
        from barnabas.server.security.authorizer.guard import NodeAuthorizer

        return NodeAuthorizer(
            config, self.config, self.runtime.clock, lambda: self.cluster.image, self._check_loaded
        )

    def early_listeners(self) -> Collection[str]:
        """Return the controller listeners that serve before the access control entries are loaded.

        Without an authorizer, these are all listeners.
        """
        listeners = self.configuration.cluster.controller_listeners
        if self.authorizer is None or self.config["early.start.listeners"] is None:
            return listeners
        return self.config.strings("early.start.listeners")

    def when_loaded(self, callback: Callable[[], None]) -> None:
        """Call `callback` once the metadata log is replayed, which may be immediately."""
        if self._check_loaded():
            callback()
        else:
            self._awaiting_metadata.append(callback)

    def _check_loaded(self) -> bool:
        """Return whether the image has been up to date once since the start."""
        if not self._is_loaded:
            last = self.cluster.image.provenance
            if self.quorum.core.has_caught_up(last.offset + 1, last.epoch):
                self._is_loaded = True
                waiting, self._awaiting_metadata = self._awaiting_metadata, []
                for callback in waiting:
                    callback()
        return self._is_loaded

    def _frame_budget(self) -> FrameBudget | None:
        bytes_max = request_memory(self.config)
        if bytes_max is None:
            return None
        return FrameBudget(bytes_max, self.runtime.clock, self.runtime.timer)

    def _transport(self) -> RaftTransport | None:
        if self.configuration.cluster.is_alone:
            return None
        # Imported only in clusters with other nodes.
        from barnabas.raft.transport.channel_transport import ChannelTransport

        listener = self.configuration.cluster.controller_listeners[0]
        runtime = replace(self.runtime, sockets=self.sockets.of(listener))
        self.transport = ChannelTransport(runtime, self._raft_config, self._login(listener))
        return self.transport

    def _open_directories(self) -> DataDirectories:
        paths = DirectoryPaths(
            log_directories(self.config),
            self.config.optional_string("metadata.log.dir"),
            self.configuration.cluster.cluster_id,
            may_found_cluster=self.configuration.cluster.may_found_cluster,
        )
        disk = self.runtime.disk
        try:
            directories = open_data_directories(
                disk, paths, self.node_id, self.runtime.rng, self._before_format
            )
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            metadata_path = metadata_directory(self.config, disk)
            raise metadata_failure(metadata_path, error, disk) from error
        self.is_unproven_voter = UnprovenVoterFile(disk, directories.metadata.path).exists()
        if self.is_unproven_voter:
            _log.info(
                "%s was empty at this voter's first start: it has no vote until it has heard of "
                "all voters of a new cluster, or has copied the metadata log of an old cluster",
                directories.metadata.path,
            )
        return directories

    def _before_format(self, metadata_path: str) -> None:
        """Record that this static voter must not vote yet, because its disk is empty.

        This node may have voted before on a disk that was lost or replaced.
        """
        cluster = self.configuration.cluster
        if cluster.is_controller and len(cluster.voters) > 1:
            UnprovenVoterFile(self.runtime.disk, metadata_path).write()


def _raft_config(
    configuration: Configuration, directories: DataDirectories, is_unproven_voter: bool
) -> RaftConfig:
    config, cluster = configuration.parsed, configuration.cluster
    voters = tuple(cluster.voters)
    if not voters and cluster.is_alone:
        voters = (cluster.node_id,)
    return RaftConfig(
        node_id=cluster.node_id,
        voters=voters,
        voter_endpoints=cluster.voters,
        bootstrap_servers=cluster.bootstrap_servers,
        directory_id=directories.metadata.id,
        cluster_id=directories.cluster_id,
        listener_name=cluster.controller_listeners[0],
        advertised={
            each.name: (each.host, each.port)
            for each in configuration.advertised_controller_endpoints
        },
        can_be_voter=cluster.is_controller,
        is_unproven_voter=is_unproven_voter,
        auto_join=config.boolean("controller.quorum.auto.join.enable"),
        election_timeout_ms=config.integer("controller.quorum.election.timeout.ms"),
        fetch_timeout_ms=config.integer("controller.quorum.fetch.timeout.ms"),
        election_backoff_max_ms=config.integer("controller.quorum.election.backoff.max.ms"),
        request_timeout_ms=config.integer("controller.quorum.request.timeout.ms"),
        retry_backoff_ms=config.integer("controller.quorum.retry.backoff.ms"),
        fetch_max_bytes=config.integer("controller.quorum.fetch.max.bytes"),
        fetch_snapshot_max_bytes=config.integer("controller.quorum.fetch.snapshot.max.bytes"),
        snapshot_record_bytes=config.integer("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=config.integer("metadata.log.max.snapshot.interval.ms"),
        segment_bytes=config.integer("metadata.log.segment.bytes"),
        segment_ms=config.integer("metadata.log.segment.ms"),
        retention_bytes=config.integer("metadata.max.retention.bytes"),
        retention_ms=config.integer("metadata.max.retention.ms"),
    )
