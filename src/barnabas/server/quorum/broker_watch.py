"""Fast detection of dead brokers, by their heartbeat connections to the active controller.

When a process is killed, its kernel resets or closes its connections. A broker that is alive
reconnects within milliseconds after an idle timeout, a restart of the listener, or a network
problem. The controller therefore probes a broker that does not reconnect within 200 ms. The broker
is dead if its listener refuses the connection, or closes it without a response. It is also dead if
its host does not accept the connection within a second: a container that was killed has lost its
address. Brokers of Apache Kafka also close the connection when a heartbeat has no response in time,
and may reconnect later. Kafka waits until the session expires after 9 s.

A newly active controller has no heartbeat connections. It probes the brokers that do not connect in
time in the same way. A host that does not respond may be cut off from this controller only, so
its broker keeps its session.

A new incarnation of a broker may try to register while the old session exists. The old incarnation
is dead if the listener does not respond: the new incarnation is bound there but does not serve yet.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from barnabas.network.network_error import NetworkErrorKind
from barnabas.server.quorum.probes import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.metadata.broker_registration import BrokerRegistration, Endpoint
    from barnabas.metadata.image import ClusterImage
    from barnabas.network.channel import ChannelDependencies
    from barnabas.network.connection import Connection
    from barnabas.network.network_error import NetworkError
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.clock import Timer

_log = logging.getLogger(__name__)

# Error of a connection that was accepted and closed before a response.
_ENDED = NetworkErrorKind.DISCONNECTED
# Time for a broker to reconnect.
_GRACE_MS = 200.0


class LossListener(Protocol):
    """The controller, which reacts to the death of a broker."""

    @property
    def image(self) -> ClusterImage | None:
        """Metadata image; None unless this node is the active controller."""
        ...

    def on_broker_suspected(self, broker_id: int, broker_epoch: int) -> None:
        """Handle a broker incarnation that may have died."""
        ...

    def on_broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """Handle a broker incarnation that has died."""
        ...


class BrokerWatch:
    """Tracks the heartbeat connection of each broker. Listens to the raft driver."""

    def __init__(
        self,
        node_id: int,
        listener: LossListener,
        timer: Timer,
        dependencies: Callable[[], ChannelDependencies],
        inter_broker_listener: str,
    ) -> None:
        """Create without connections of brokers.

        Args:
            node_id: id of this controller.
            listener: reacts to the death of brokers.
            timer: runs the delay before a check.
            dependencies: returns the dependencies of the probes' channels, created at first use.
            inter_broker_listener: listener for probes. The addresses of other listeners are for
                clients.
        """
        self._node_id = node_id
        self._listener = listener
        self._timer = timer
        self._dependencies = dependencies
        self._inter_broker_listener = inter_broker_listener
        # Connection and broker epoch of the last heartbeat, by broker id. `_brokers` is the inverse
        # map.
        self._connections: dict[int, tuple[Connection, int]] = {}
        self._brokers: dict[Connection, int] = {}
        # Ids of brokers with a pending probe from `on_duplicate`.
        self._probed: set[int] = set()

    def on_heartbeat(self, connection: Connection, broker_id: int, broker_epoch: int) -> None:
        """Record the connection of a heartbeat as the connection of its broker."""
        known = self._connections.get(broker_id)
        if known is not None and known[0] is connection and known[1] == broker_epoch:
            return
        if known is not None and known[0] is not connection:
            self._brokers.pop(known[0], None)
        self._connections[broker_id] = (connection, broker_epoch)
        self._brokers[connection] = broker_id

    def on_closed(self, connection: Connection) -> None:
        """Start the check of a broker whose heartbeat connection has closed."""
        broker_id = self._brokers.pop(connection, None)
        if broker_id is None:
            return
        known = self._connections.get(broker_id)
        if known is None or known[0] is not connection:
            return
        del self._connections[broker_id]
        epoch = known[1]
        self._listener.on_broker_suspected(broker_id, epoch)
        self._timer.call_later(_GRACE_MS, lambda: self._check(broker_id, epoch))

    def on_duplicate(self, broker_id: int) -> None:
        """Probe a broker after the registration of another incarnation was rejected."""
        broker = self._registered().get(broker_id)
        if broker is None or broker_id in self._connections or broker_id in self._probed:
            return
        endpoint = broker.listeners.get(self._inter_broker_listener)
        if endpoint is None:
            return
        self._probed.add(broker_id)

        def on_result(error: NetworkError | None) -> None:
            self._probed.discard(broker_id)
            if error is not None:
                self._report_lost(
                    broker,
                    f"a new process with its id registers, and this one does not respond: {error}",
                )

        probe(self._dependencies(), endpoint.host, endpoint.port, on_result)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Ignore committed records."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Ignore snapshots."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """When this node becomes active, probe the unconnected brokers after a delay."""
        if leader.leader_id == self._node_id:
            self._timer.call_later(_GRACE_MS, self._probe_unconnected)

    def _check(self, broker_id: int, epoch: int) -> None:
        broker = self._registered().get(broker_id)
        if broker is None or broker.epoch != epoch or broker_id in self._connections:
            return
        endpoint = broker.listeners.get(self._inter_broker_listener)
        if endpoint is None:
            self._report_lost(broker, "its heartbeat connection closed and was not replaced")
        else:
            self._probe(broker, endpoint, has_closed=True)

    def _probe_unconnected(self) -> None:
        for broker in self._registered().values():
            if broker.fenced:
                continue
            if broker.id != self._node_id and broker.id not in self._connections:
                endpoint = broker.listeners.get(self._inter_broker_listener)
                if endpoint is not None:
                    self._probe(broker, endpoint, has_closed=False)

    def _probe(self, broker: BrokerRegistration, endpoint: Endpoint, *, has_closed: bool) -> None:
        """Probe a broker, and report it if it is dead.

        Args:
            broker: a registered broker.
            endpoint: its inter-broker listener.
            has_closed: whether it had a heartbeat connection, which was closed.
        """

        def on_result(error: NetworkError | None) -> None:
            if error is None:
                return
            is_absent = error.is_unreachable if has_closed else error.is_refusal
            if not is_absent and error.kind is not _ENDED:
                # The process may be paused or slow. Its session expires if it is.
                return
            self._report_lost(broker, f"no response at {endpoint.host}:{endpoint.port}")

        probe(self._dependencies(), endpoint.host, endpoint.port, on_result)

    def _registered(self) -> Mapping[int, BrokerRegistration]:
        image = self._listener.image
        return {} if image is None else image.brokers

    def _report_lost(self, broker: BrokerRegistration, reason: str) -> None:
        """Report a broker as dead unless it has reconnected or its registration has changed.

        The controller has fenced a broker that stops, before it lets the process end. Such a report
        has only one effect: a new process with this id need not wait for the end of the session.
        """
        present = self._registered().get(broker.id)
        if present is None or present.epoch != broker.epoch or broker.id in self._connections:
            return
        if present.fenced:
            _log.info("Process of a fenced broker has ended: id=%d", broker.id)
        else:
            _log.warning("Broker lost: id=%d reason=%s", broker.id, reason)
        self._listener.on_broker_lost(broker.id, broker.epoch)
