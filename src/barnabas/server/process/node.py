"""Node of a cluster: create, connect, start and stop the parts of the process (KafkaRaftServer).

A start locks and checks the data directories, opens the metadata log, and binds the listeners.
Connections wait at this point. The node then starts the metadata quorum and the controller, opens
the logs and registers the broker. After the controller has unfenced the broker, the node serves
connections and reports that it is ready.

A stop runs in reverse order and ends with the clean-shutdown file. A single-node cluster contains
its own controller. It does not import modules that only larger clusters need.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from msgspec.structs import replace

from barnabas.protocol.errors import ErrorCode
from barnabas.server.configs.config import metadata_directory
from barnabas.server.configs.endpoints import parse_address
from barnabas.server.listeners.node_sockets import NodeSockets
from barnabas.server.process.observation import RUNNING, STOPPING, Observation
from barnabas.server.process.shared_server import SharedServer
from barnabas.server.startup.node_failure import NodeFailedError
from barnabas.settings.key import ConfigError
from barnabas.storage.errors import StorageError
from barnabas.storage.files.metadata_files import is_formatted

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.network.channel import ChannelDependencies
    from barnabas.runtime.clock import Cancellable
    from barnabas.runtime.loop import Runtime
    from barnabas.server.configs.configuration import Configuration
    from barnabas.server.controller_access.controller_access import ControllerAccess
    from barnabas.server.controller_access.forwarding import ControllerChannels
    from barnabas.server.process.broker_server import BrokerServer
    from barnabas.server.process.controller_server import ControllerServer
    from barnabas.server.quorum.quorum_watch import QuorumWait
    from barnabas.server.startup.cluster_ids import ClusterIdCheck, ClusterIds

_log = logging.getLogger(__name__)

# How long a broker continues to respond with errors after a disk failure, before the process ends.
# The requests that it has received, and the first retries of clients, get a response in this time.
_LAST_RESPONSES_MS = 1_000.0
# Address of the metrics that only the supervisor reads.
_FOR_SUPERVISOR = ("127.0.0.1", 0)


class Node:
    """A node of a cluster: a broker, a controller, or both."""

    def __init__(
        self,
        configuration: Configuration,
        runtime: Runtime,
        on_ready: Callable[[str], None],
        on_failed: Callable[[BaseException], None],
        *,
        has_supervisor: bool = False,
    ) -> None:
        """Create the node.

        Args:
            on_ready: called with the advertised HOST:PORT once the node serves requests.
            on_failed: called with the error when the node cannot continue. The process then has to
                end.
            has_supervisor: whether a supervisor serves the metrics of several processes. This node
                then serves its own to the supervisor only.
        """
        self._configuration = configuration
        self._has_supervisor = has_supervisor
        self._runtime = runtime
        self._on_ready = on_ready
        self._on_failed = on_failed
        # Roles of this node. None without the role, and before `_start`.
        self.controller: ControllerServer | None = None
        self.broker: BrokerServer | None = None
        # Connections to the active controller. None in a single-node cluster.
        self._channels: ControllerChannels | None = None
        # Logs the reason for a wait during a start in a cluster. None at other times.
        self._waiting: QuorumWait | None = None
        # Ends the node if the broker is not registered in time. None if no timeout is pending.
        self._registration_limit: Cancellable | None = None
        # Created by `_start`. None while the node requests the cluster id of other controllers.
        self._shared: SharedServer | None = None
        # Whether `stop` was called before `_shared` was created.
        self._is_stopped_early = False
        # Check of the cluster id. None without other controllers, and before `_start`.
        self._cluster_ids: ClusterIdCheck | None = None
        # Sockets of the listeners. Created at the first use.
        self._sockets: NodeSockets | None = None
        # HOST:PORT that `metrics.listener` is bound to. None without this setting.
        self.metrics_address: str | None = None

    @property
    def shared(self) -> SharedServer:
        """Components of every node. Available once the node opens its directories."""
        assert self._shared is not None, "requests for the cluster id are still pending"
        return self._shared

    def start(self) -> None:
        """Start the node; `on_ready` is called in a later turn of the loop.

        If the directory of the metadata log is empty and there are other controllers, the node
        first requests their cluster id. Later errors are passed to `on_failed`.

        Raises:
            StorageError: a data directory is in use, belongs to another node or cluster, or cannot
                be opened.
            OSError: an address cannot be bound, or a directory cannot be created.
            NodeFailedError: the disk of the metadata log failed.
            ConfigError: an advertised endpoint is an address that clients cannot connect to, or a
                key store or a policy cannot be used.
        """
        path = metadata_directory(self._configuration.parsed, self._runtime.disk)
        if self._configuration.cluster.is_alone or is_formatted(self._runtime.disk, path):
            self._start()
            return
        from barnabas.server.startup.cluster_ids import fetch_cluster_ids, other_controllers

        controllers = other_controllers(self._configuration)
        if not controllers:
            self._start()
            return
        fetch_cluster_ids(
            self._first_channel_dependencies(),
            controllers,
            lambda found: self._start_empty(path, found),
        )

    def _first_channel_dependencies(self) -> ChannelDependencies:
        """Return the dependencies of channels that are used before the shared server exists."""
        from barnabas.network.channel import ChannelDependencies
        from barnabas.network.framed_protocol import new_receive_buffer
        from barnabas.waiting.timing_wheel import TimingWheel

        runtime = self._runtime
        wheel = TimingWheel(runtime.clock, runtime.timer)
        listener = self._configuration.cluster.controller_listeners[0]
        sockets = self._node_sockets().of(listener)
        made = ChannelDependencies(
            runtime.clock, runtime.timer, sockets, wheel, new_receive_buffer()
        )
        settings = self._configuration.logins.get(listener)
        if settings is None:
            return made
        # Imported only for listeners with SASL.
        from barnabas.server.security.sasl.node_login import node_login

        return replace(made, login=node_login(settings, runtime))

    def _node_sockets(self) -> NodeSockets:
        """Return the sockets of each listener. The key stores are read at the first call.

        Raises:
            ConfigError: a key store cannot be used.
        """
        if self._sockets is None:
            self._sockets = NodeSockets(self._configuration, self._runtime)
        return self._sockets

    def _start_empty(self, path: str, found: ClusterIds) -> None:
        """Format and start the node, unless the other controllers belong to another cluster."""
        if self._is_stopped_early:
            return
        from barnabas.server.startup.cluster_ids import check_before_format

        try:
            check_before_format(found, path, self._configuration.cluster.cluster_id)
            self._start()
        except (StorageError, OSError, NodeFailedError, ConfigError) as error:
            # `start` has already returned, so an exception would not reach its caller.
            self._on_failed(error)

    def _start(self) -> None:
        cluster = self._configuration.cluster
        self._shared = SharedServer(
            self._configuration, self._runtime, self._node_sockets(), self._fail
        )
        _log.info(
            "Node starting: id=%d cluster=%s roles=%s",
            self.shared.node_id,
            self.shared.cluster_id,
            ",".join(cluster.roles),
        )
        if cluster.is_controller:
            from barnabas.server.process.controller_server import ControllerServer

            self.controller = ControllerServer(self.shared)
        requests, heartbeats = self._controller_access()
        if cluster.is_broker:
            from barnabas.server.process.broker_server import BrokerServer

            self.broker = BrokerServer(self.shared, requests, heartbeats, self._on_serving)
        self._observe()
        self.shared.follow_quorum()
        if self.controller is not None:
            self.controller.follow_quorum(requests)
        if self._channels is not None:
            self.shared.quorum.add_listener(self._channels)
        if cluster.is_alone:
            assert self.controller is not None
            assert self.broker is not None
            self.controller.controller.when_active(self.broker.start_alone)
        self.shared.quorum.start()
        if self.controller is not None:
            self.controller.serve()
        if not cluster.is_alone:
            self._join_cluster()

    def abandon(self) -> None:
        """Close the resources that `start` opened before it failed. Do not call `stop` then."""
        if self._shared is not None:
            self._shared.quorum.shutdown()
            self._shared.close()

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop serving, close every log, write the clean-shutdown file, then call `on_stopped`."""
        if self._shared is None:
            self._is_stopped_early = True
            on_stopped()
            return
        if self.shared.is_stopping:
            return
        self.shared.is_stopping = True
        _log.info("Node stopping: id=%d", self.shared.node_id)
        self.observation.state = STOPPING
        if self.observation.quorum_watch is not None:
            self.observation.quorum_watch.stop()
        self._stop_waiting()
        broker = self.broker
        if broker is None:
            self._close(on_stopped)
        elif self._configuration.is_single:
            broker.drain(lambda: broker.leave(lambda: self._close(on_stopped)))
        else:
            # The other brokers take over the partitions first, so that clients always find a
            # leader.
            broker.leave(lambda: broker.drain(lambda: self._close(on_stopped)))

    def _close(self, on_stopped: Callable[[], None]) -> None:
        """Close everything after the controlled shutdown has ended."""

        def finish() -> None:
            self.shared.quorum.shutdown()
            if self.controller is not None:
                self.controller.close()
            if self.broker is not None:
                self.broker.close_logs()
            self.shared.close()
            _log.info("Node stopped: id=%d", self.shared.node_id)
            on_stopped()

        self.observation.close()
        if self._channels is not None:
            self._channels.close()
        if self.broker is None:
            finish()
        else:
            self.broker.close(finish)

    def _controller_access(self) -> tuple[ControllerAccess, ControllerAccess]:
        """Return the two paths to the active controller: for requests, and for heartbeats."""
        local = None if self.controller is None else self.controller.local
        if self._configuration.cluster.is_alone:
            assert local is not None
            return local, local
        from barnabas.server.controller_access.forwarding import (
            ControllerChannels,
            ForwardingDependencies,
        )

        shared = self.shared
        dependencies = ForwardingDependencies(
            shared.channels_to_controllers, shared.runtime.rng, shared.find_controller, local
        )
        self._channels = ControllerChannels(
            shared.node_id, shared.config, dependencies, self._on_heartbeats_lost
        )
        return self._channels.requests, self._channels.heartbeats

    def _observe(self) -> None:
        controller, broker = self.controller, self.broker
        listeners = [
            *(broker.listeners if broker else ()),
            *(controller.listeners if controller else ()),
        ]
        self.observation = Observation(self.shared, listeners)
        if broker is not None:
            self.observation.observe_broker(broker.dependencies, broker.links, broker.tiering)
        address = self.shared.config.optional_string("metrics.listener")
        host_and_port = parse_address(address) if address else None
        if host_and_port is not None and self._has_supervisor:
            host_and_port = _FOR_SUPERVISOR
        if host_and_port is not None:
            self.metrics_address = self.observation.listen(*host_and_port)

    # -- in a cluster -------------------------------------------------------------------------

    def _join_cluster(self) -> None:
        from barnabas.server.quorum.quorum_watch import QuorumWait

        shared, cluster = self.shared, self._configuration.cluster
        others = {voter: at for voter, at in cluster.voters.items() if voter != cluster.node_id}
        self._waiting = QuorumWait(
            shared.channels_to_controllers,
            others,
            self._has_controller,
            None if self.broker is None else self.broker.awaits,
            lambda: shared.quorum.core.has_vote,
            self._refusal,
        )
        self._check_cluster_id()
        if self.broker is None:
            assert self.controller is not None
            assert self.controller.address is not None
            advertised = self._configuration.advertised_controller_endpoints[0]
            # Port 0 stands for a free port, which is known only after the bind.
            address = advertised.address if advertised.port else self.controller.address
            self._start_running(address)
            return
        limit_ms = shared.config.integer("initial.broker.registration.timeout.ms")
        self._registration_limit = self._runtime.timer.call_later(
            limit_ms, lambda: self._on_registration_timeout(limit_ms)
        )
        self.broker.start_in_cluster()

    def _has_controller(self) -> bool:
        if self.broker is not None and self._channels is not None:
            return self._channels.heartbeats.reaches_controller
        return self.shared.quorum.core.leader_and_epoch.leader_id >= 0

    def _on_registration_timeout(self, limit_ms: int) -> None:
        self._registration_limit = None
        if self.broker is not None and self.broker.registration.epoch < 0:
            reason = self._refusal() or "make sure that a majority of them runs"
            self.shared.fail(
                NodeFailedError(
                    f"the controllers did not accept the registration of this broker within "
                    f"{limit_ms} ms, which is initial.broker.registration.timeout.ms; {reason}"
                )
            )

    def _refusal(self) -> str:
        """Return why other nodes refuse the requests of this node; empty if they do not."""
        from barnabas.server.quorum.node_principals import refusal_reason

        error = ErrorCode.NONE if self.broker is None else self.broker.registration.last_refusal
        if error is ErrorCode.NONE and self.shared.transport is not None:
            error = self.shared.transport.refusal
        return refusal_reason(self._configuration, error)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.finish()
        if self._registration_limit is not None:
            self._registration_limit.cancel()
        if self._cluster_ids is not None:
            self._cluster_ids.stop()

    def _on_heartbeats_lost(self) -> None:
        if self.broker is not None:
            self.broker.lost_leaders.on_controller_lost()
            self.broker.registration.heartbeat_now()

    # -- events -------------------------------------------------------------------------------

    def _on_serving(self) -> None:
        assert self.broker is not None
        self._stop_waiting()
        self._start_running(self.broker.advertised[0].address)

    def _start_running(self, address: str) -> None:
        self.observation.state = RUNNING
        if not self._configuration.cluster.is_alone:
            self._watch_quorum()
        self.shared.changes.is_caught_up = True
        self._runtime.watch.begin()
        _log.info("Node ready: id=%d address=%s", self.shared.node_id, address)
        self._on_ready(address)

    def _check_cluster_id(self) -> None:
        from barnabas.server.startup.cluster_ids import ClusterIdCheck, other_controllers

        shared = self.shared
        controllers = other_controllers(self._configuration)
        if not controllers:
            return
        metadata = shared.directories.metadata
        is_new = metadata.was_formatted or shared.quorum.log.log_end_offset == 0
        self._cluster_ids = ClusterIdCheck(
            shared.channels_to_controllers,
            controllers,
            (metadata.path, shared.cluster_id, is_new),
            shared.has_quorum_contact,
            shared.fail,
        )
        self._cluster_ids.start()

    def _watch_quorum(self) -> None:
        from barnabas.server.quorum.quorum_watch import QuorumWatch

        watch = QuorumWatch(
            self.shared.channels_to_controllers,
            self.shared.quorum,
            self.shared.has_quorum_contact,
            lambda: self._waiting is not None and self._waiting.is_waiting,
        )
        self.observation.quorum_watch = watch
        watch.start()

    def _fail(self, error: BaseException) -> None:
        """End the node. After a disk failure, give clients time to receive the error first."""
        self.observation.failure = error
        is_serving = self.broker is not None and self.observation.state == RUNNING
        if is_serving and isinstance(error, NodeFailedError):
            self._runtime.timer.call_later(_LAST_RESPONSES_MS, lambda: self._on_failed(error))
        else:
            self._on_failed(error)
