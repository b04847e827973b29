"""Notices at once that a broker has died, by its connection to the controller (MISSION D4).

A killed process's connections are reset or closed by its kernel. One that lives connects again
within milliseconds, whatever closed the old connection: an idle time-out, a listener that was
restarted, a hiccup. So a broker whose heartbeat connection is gone, and who has made no other
within 200 ms, is taken for dead; Kafka waits for the end of its session, 9 s.

A controller that has just become active knows no connections. It asks after the brokers that have
not come by then: one whose listener refuses the connection, or ends it without an answer, is dead.
So is one whose listener takes the connection and does not answer while a new life of the broker
asks to be let in: it is the new one that listens there, and it does not serve yet.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from barnabas.network.network_error import NetworkErrorKind
from barnabas.server.reachability import probe

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from barnabas.metadata.broker_registration import BrokerRegistration, Endpoint
    from barnabas.metadata.image import ClusterImage
    from barnabas.network.channel import ChannelDoors
    from barnabas.network.connection import Connection
    from barnabas.network.network_error import NetworkError
    from barnabas.raft.listener import CommittedBatch, LeaderAndEpoch, LoadedSnapshot
    from barnabas.runtime.timer import Timer

_log = logging.getLogger(__name__)

# A connection that was taken, and ended before an answer.
_ENDED = NetworkErrorKind.DISCONNECTED
# How long a broker has to connect again.
_GRACE_MS = 200.0


class LossListener(Protocol):
    """Who acts on a broker's death."""

    @property
    def image(self) -> ClusterImage | None:
        """The cluster; None unless this is the active controller."""
        ...

    def on_broker_doubted(self, broker_id: int, broker_epoch: int) -> None:
        """This life of the broker may have ended."""
        ...

    def on_broker_lost(self, broker_id: int, broker_epoch: int) -> None:
        """This life of the broker has ended."""
        ...


class BrokerWatch:
    """Knows which connection each broker's heartbeats come by. A listener of the raft driver."""

    def __init__(
        self,
        node_id: int,
        listener: LossListener,
        timer: Timer,
        doors: Callable[[], ChannelDoors],
        inter_broker_listener: str,
    ) -> None:
        """Args:
        inter_broker_listener: where nodes reach brokers; addresses of others are for clients.
        doors: to ask after brokers; made when they are first needed.
        """
        self._node_id = node_id
        self._listener = listener
        self._timer = timer
        self._doors = doors
        self._inter_broker_listener = inter_broker_listener
        # By broker: its connection, and its epoch as the last heartbeat on it said.
        self._connections: dict[int, tuple[Connection, int]] = {}
        self._brokers: dict[Connection, int] = {}
        # Brokers whose former lives are being asked after.
        self._asked: set[int] = set()

    def on_heartbeat(self, connection: Connection, broker_id: int, broker_epoch: int) -> None:
        """A heartbeat came; from its first one on the connection is the broker's."""
        known = self._connections.get(broker_id)
        if known is not None and known[0] is connection and known[1] == broker_epoch:
            return
        if known is not None and known[0] is not connection:
            self._brokers.pop(known[0], None)
        self._connections[broker_id] = (connection, broker_epoch)
        self._brokers[connection] = broker_id

    def on_closed(self, connection: Connection) -> None:
        """A connection of the controller's listener is gone."""
        broker_id = self._brokers.pop(connection, None)
        if broker_id is None:
            return
        known = self._connections.get(broker_id)
        if known is None or known[0] is not connection:
            return
        del self._connections[broker_id]
        epoch = known[1]
        self._listener.on_broker_doubted(broker_id, epoch)
        self._timer.call_later(_GRACE_MS, lambda: self._check(broker_id, epoch))

    def on_duplicate(self, broker_id: int) -> None:
        """A life of a broker was turned away, since the session of another one is not over."""
        broker = self._registered().get(broker_id)
        if broker is None or broker_id in self._connections or broker_id in self._asked:
            return
        endpoint = broker.listeners.get(self._inter_broker_listener)
        if endpoint is None:
            return
        self._asked.add(broker_id)

        def on_result(error: NetworkError | None) -> None:
            self._asked.discard(broker_id)
            if error is not None:
                self._lose_if_silent(
                    broker, f"another life of it has come, and this one answers no more: {error}"
                )

        probe(self._doors(), endpoint.host, endpoint.port, on_result)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Nothing to do."""

    def on_snapshot(self, snapshot: LoadedSnapshot) -> None:
        """Nothing to do."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """A controller that has become the active one lets brokers come by themselves first."""
        if leader.leader_id == self._node_id:
            self._timer.call_later(_GRACE_MS, self._ask_after_silent)

    def _check(self, broker_id: int, epoch: int) -> None:
        broker = self._registered().get(broker_id)
        if broker is not None and broker.epoch == epoch:
            self._lose_if_silent(broker, "its connection is gone and it has made no other")

    def _ask_after_silent(self) -> None:
        for broker in self._registered().values():
            if broker.fenced:
                continue
            if broker.id != self._node_id and broker.id not in self._connections:
                endpoint = broker.listeners.get(self._inter_broker_listener)
                if endpoint is not None:
                    self._ask_after(broker, endpoint)

    def _ask_after(self, broker: BrokerRegistration, endpoint: Endpoint) -> None:
        def on_result(error: NetworkError | None) -> None:
            if error is None or not (error.is_refusal or error.kind is _ENDED):
                # It lives; or its machine does not answer: then its session will run out.
                return
            self._lose_if_silent(broker, f"nobody answers at {endpoint.host}:{endpoint.port}")

        probe(self._doors(), endpoint.host, endpoint.port, on_result)

    def _registered(self) -> Mapping[int, BrokerRegistration]:
        image = self._listener.image
        return {} if image is None else image.brokers

    def _lose_if_silent(self, broker: BrokerRegistration, reason: str) -> None:
        """Give a life of a broker up, unless it has come meanwhile or is over anyway."""
        present = self._registered().get(broker.id)
        is_same = present is not None and present.epoch == broker.epoch
        if is_same and broker.id not in self._connections:
            _log.warning("Broker %d is taken for dead: %s", broker.id, reason)
            self._listener.on_broker_lost(broker.id, broker.epoch)
