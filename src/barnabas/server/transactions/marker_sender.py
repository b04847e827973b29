"""Sends the markers of ended transactions (Kafka's TransactionMarkerChannelManager).

Each broker has a queue and at most one request in flight. The next request contains all markers
that were queued in the meantime. Markers for partitions of this broker are written directly.

Markers are written from the next turn of the loop on, after the response to the request that ends
the transaction. A turn serves a limited number of partitions.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.runtime.transaction_ending import TransactionEnding
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.server.transactions.marker_writer import WRITTEN_AT_ONCE
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import in_parts, run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.transaction.markers import Markers
    from barnabas.network.network_error import NetworkError
    from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
    from barnabas.replication.fetcher.leader_channels import LeaderChannel, LeaderChannels
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.transactions.marker_writer import MarkerWriter

_log = logging.getLogger(__name__)

_VERSION = 2
_TIMEOUT_MS = 30_000.0
_RETRY_MS = 50.0
# Numbers after which a request gets no further marker: of markers, and of their partitions.
_BATCH_MAX = 500
_BATCH_PARTITIONS_MAX = 2_000
# Partitions of a transaction whose leaders are looked up at once: each takes some microseconds.
_FOUND_AT_ONCE = 200
# Errors that end the attempt: another coordinator or a newer epoch of the producer has ended the
# transaction.
_FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
# Errors after which the leader is looked up again, and the marker is sent to it.
_RETRIED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class _PendingTransaction:
    """The markers of one transaction while they are sent."""

    __slots__ = (
        "ending",
        "has_unknown_leader",
        "is_done",
        "markers",
        "on_done",
        "on_written",
        "remaining",
        "retried",
    )

    def __init__(
        self,
        markers: Markers,
        on_written: Callable[[TopicPartition], None],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        self.markers = markers
        self.on_written = on_written
        self.on_done = on_done
        self.ending = TransactionEnding(
            markers.producer_id,
            markers.producer_epoch,
            markers.coordinator_epoch,
            markers.is_commit,
            markers.transaction_version,
        )
        # Partitions whose marker is not written yet. Each result removes its partition.
        self.remaining = set(markers.partitions)
        # Partitions whose marker is sent again when the timer of retries fires. The timer runs
        # while there are some.
        self.retried: list[TopicPartition] = []
        # Whether one of these has no leader.
        self.has_unknown_leader = False
        # Whether the attempt has ended, or its state partition has moved. Never reset.
        self.is_done = False


class _Peer:
    """The queue of one broker."""

    __slots__ = ("channel", "is_busy", "queue")

    def __init__(self, channel: LeaderChannel) -> None:
        self.channel = channel
        # Whether a request is in flight.
        self.is_busy = False
        # Markers to send: the transaction, and its partitions on the broker.
        self.queue: deque[tuple[_PendingTransaction, list[TopicPartition]]] = deque()


class NetworkMarkerSender:
    """The `MarkerSender` of a broker."""

    __slots__ = (
        "_channels",
        "_clock",
        "_cluster",
        "_later",
        "_node_id",
        "_peers",
        "_pending",
        "_timer",
        "_writer",
        "requests",
        "responses",
        "unknown_leaders",
    )

    def __init__(
        self,
        node_id: int,
        cluster: ClusterView,
        writer: MarkerWriter,
        times: tuple[Clock, Timer],
        channels: LeaderChannels | None,
    ) -> None:
        """Create the sender.

        Args:
            node_id: id of this broker.
            cluster: finds the leaders of partitions.
            writer: writes the markers of partitions that this broker leads.
            times: the clock of slices, and the timer of retries.
            channels: opens connections to other brokers; None in a cluster of one node.
        """
        self._node_id = node_id
        self._cluster = cluster
        self._writer = writer
        self._clock, self._timer = times
        self._channels = channels
        # Queues by broker id. Created for the first marker, and never removed.
        self._peers: dict[int, _Peer] = {}
        # Unfinished transactions by partition of __transaction_state.
        self._pending: dict[int, set[_PendingTransaction]] = {}
        # Partitions that are not served yet, by transaction. A slice is scheduled while there are
        # some.
        self._later: deque[tuple[_PendingTransaction, list[TopicPartition]]] = deque()
        # Number of markers that wait because their partitions have no known leader.
        self.unknown_leaders = 0
        # Number of requests to other brokers, and of their responses. Only increase.
        self.requests = 0
        self.responses = 0

    @property
    def connections(self) -> int:
        """Number of open connections to other brokers."""
        return sum(peer.channel.is_connected for peer in self._peers.values())

    @property
    def connections_created(self) -> int:
        """Number of connections that were opened to other brokers. Only increases."""
        return sum(peer.channel.connections_created for peer in self._peers.values())

    def send(
        self,
        markers: Markers,
        on_written: Callable[[TopicPartition], None],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Send the markers, see `MarkerSender`."""
        pending = _PendingTransaction(markers, on_written, on_done)
        if not pending.remaining:
            on_done(ErrorCode.NONE)
            return
        self._pending.setdefault(markers.coordinator_partition, set()).add(pending)
        self._dispatch(pending, list(markers.partitions))

    def forget(self, coordinator_partition: int) -> None:
        """Drop the markers of a state partition that this broker no longer leads."""
        for pending in self._pending.pop(coordinator_partition, ()):
            pending.is_done = True

    def _dispatch(self, pending: _PendingTransaction, partitions: list[TopicPartition]) -> None:
        """Write or queue the markers for the leaders of these partitions from the next turn on.

        The response to the request that ends the transaction is sent in this turn.
        """
        self._later.append((pending, partitions))
        if len(self._later) == 1:
            self._timer.call_soon(self._start_slices)

    def _start_slices(self) -> None:
        run_in_slices(self._steps(), self._clock, self._timer.call_soon, lambda _: None)

    def _steps(self) -> Generator[None, None, None]:
        """Serve the partitions of all dispatched transactions. Yields after each step."""
        while self._later:
            pending, partitions = self._later[0]
            for some in in_parts(partitions, _FOUND_AT_ONCE):
                if pending.is_done:
                    break
                local = self._send_to_others(pending, some)
                if not local:
                    yield
                for part in in_parts(local, WRITTEN_AT_ONCE):
                    if pending.is_done:
                        break
                    self._writer.write(pending.ending, part, partial(self._on_result, pending))
                    yield
            self._later.popleft()

    def _send_to_others(
        self, pending: _PendingTransaction, partitions: list[TopicPartition]
    ) -> list[TopicPartition]:
        """Serve the partitions of other brokers, and return those of this broker."""
        leaders: dict[int, list[TopicPartition]] = {}
        gone: list[TopicPartition] = []
        leaderless: list[TopicPartition] = []
        for key in partitions:
            found = self._cluster.partition(*key)
            if found is None:
                gone.append(key)
            elif found.leader < 0:
                leaderless.append(key)
            else:
                leaders.setdefault(found.leader, []).append(key)
        local = leaders.pop(self._node_id, [])
        for broker_id, keys in leaders.items():
            self._enqueue(broker_id, pending, keys)
        if leaderless:
            if not pending.has_unknown_leader:
                # One marker, as Kafka counts: it carries all partitions of the transaction.
                pending.has_unknown_leader = True
                self.unknown_leaders += 1
            self._retry(pending, leaderless)
        for key in gone:
            self._on_result(pending, key, ErrorCode.NONE)
        return local

    def _retry(self, pending: _PendingTransaction, partitions: list[TopicPartition]) -> None:
        is_scheduled = bool(pending.retried)
        pending.retried += partitions
        if not is_scheduled:
            self._timer.call_later(_RETRY_MS, lambda: self._send_again(pending))

    def _send_again(self, pending: _PendingTransaction) -> None:
        partitions, pending.retried = pending.retried, []
        self.unknown_leaders -= pending.has_unknown_leader
        pending.has_unknown_leader = False
        if not pending.is_done:
            self._dispatch(pending, partitions)

    def _on_result(
        self, pending: _PendingTransaction, key: TopicPartition, error: ErrorCode
    ) -> None:
        is_written = error in (ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)
        if is_written:
            pending.remaining.discard(key)
            pending.on_written(key)
        if pending.is_done:
            return
        if is_written:
            if not pending.remaining:
                self._end(pending, ErrorCode.NONE)
        elif error in _FINAL:
            self._end(pending, error)
        else:
            if error not in _RETRIED:
                _log.error(
                    "Transaction marker rejected, retrying: partition=%s "
                    "transactional_id=%s error=%s",
                    key,
                    pending.markers.transactional_id,
                    error.name,
                )
            self._retry(pending, [key])

    def _end(self, pending: _PendingTransaction, error: ErrorCode) -> None:
        pending.is_done = True
        unfinished = self._pending.get(pending.markers.coordinator_partition)
        if unfinished is not None:
            unfinished.discard(pending)
        pending.on_done(error)

    # Other brokers.

    def _enqueue(
        self, broker_id: int, pending: _PendingTransaction, keys: list[TopicPartition]
    ) -> None:
        peer = self._peers.get(broker_id)
        if peer is None:
            if self._channels is None:
                self._retry(pending, keys)
                return
            channel = self._channels.open(broker_id, f"broker-{self._node_id}-txn-marker-sender")
            peer = self._peers[broker_id] = _Peer(channel)
        peer.queue.append((pending, keys))
        if not peer.is_busy:
            self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        batch: list[tuple[_PendingTransaction, list[TopicPartition]]] = []
        partitions = 0
        while peer.queue and len(batch) < _BATCH_MAX and partitions < _BATCH_PARTITIONS_MAX:
            pending, keys = peer.queue.popleft()
            if pending.is_done:
                continue
            if batch and batch[-1][0] is pending:
                batch[-1][1].extend(keys)
            else:
                batch.append((pending, keys))
            partitions += len(keys)
        if not batch:
            return
        peer.is_busy = True
        request = WriteTxnMarkersRequest(
            markers=[_marker(pending.ending, keys) for pending, keys in batch]
        )
        self.requests += 1
        peer.channel.send(request, _VERSION, partial(self._on_response, peer, batch), _TIMEOUT_MS)

    def _on_response(
        self,
        peer: _Peer,
        batch: list[tuple[_PendingTransaction, list[TopicPartition]]],
        response: WriteTxnMarkersResponse | None,
        _error: NetworkError | None,
    ) -> None:
        peer.is_busy = False
        results: dict[int, dict[TopicPartition, ErrorCode]] = {}
        if response is not None:
            self.responses += 1
            for marker in response.markers:
                of_producer = results.setdefault(marker.producer_id, {})
                for topic in marker.topics:
                    for each in topic.partitions:
                        key = TopicPartition(topic.name, each.partition_index)
                        of_producer[key] = ErrorCode.of(each.error_code)
        for pending, keys in batch:
            found = results.get(pending.ending.producer_id, {})
            for key in keys:
                # Without a result for the partition, or after a lost connection, retry the marker.
                self._on_result(pending, key, found.get(key, ErrorCode.REQUEST_TIMED_OUT))
        if peer.queue:
            self._flush(peer)


def _marker(ending: TransactionEnding, keys: list[TopicPartition]) -> WritableTxnMarker:
    topics: dict[str, list[int]] = {}
    for topic, index in keys:
        topics.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=ending.producer_id,
        producer_epoch=ending.producer_epoch,
        transaction_result=ending.is_commit,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in topics.items()
        ],
        coordinator_epoch=ending.coordinator_epoch,
        transaction_version=ending.transaction_version,
    )
