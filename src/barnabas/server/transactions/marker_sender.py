"""Sends the markers of ended transactions (Kafka's TransactionMarkerChannelManager).

Markers for partitions of this broker are written directly.

Markers are written from the next turn of the loop on, after the response to the request that ends
the transaction. A turn serves a limited number of partitions.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from barnabas.coordinator.runtime.transaction_ending import TransactionEnding
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.server.peers.broker_requests import BrokerRequests, RequestSettings, raise_later
from barnabas.server.transactions.marker_writer import WRITTEN_AT_ONCE
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import in_parts, run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.transaction.markers import Markers
    from barnabas.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
    from barnabas.replication.fetcher.leader_channels import LeaderChannels
    from barnabas.runtime.clock import Clock
    from barnabas.runtime.timer import Timer
    from barnabas.server.cluster.cluster_view import ClusterView
    from barnabas.server.peers.broker_requests import PartsRequest
    from barnabas.server.transactions.marker_writer import MarkerWriter

_log = logging.getLogger(__name__)

_VERSION = 2
_RETRY_MS = 50.0
# Delay (ms) after an error that another attempt will probably repeat.
_RETRY_UNEXPECTED_MS = 1_000.0
# Waiting markers for each broker. Further ones are sent later.
_QUEUE_MAX = 100_000
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


class _Part(NamedTuple):
    """Markers to send: the transaction, and its partitions on the broker."""

    pending: _PendingTransaction
    keys: list[TopicPartition]


# Errors by producer id and partition.
_Results = dict[int, dict[TopicPartition, ErrorCode]]


class NetworkMarkerSender:
    """The `MarkerSender` of a broker."""

    __slots__ = (
        "_clock",
        "_cluster",
        "_later",
        "_node_id",
        "_pending",
        "_timer",
        "_writer",
        "requests",
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
        settings = RequestSettings(f"broker-{node_id}-txn-marker-sender", _VERSION, _QUEUE_MAX)
        # The requests to other brokers.
        self.requests = BrokerRequests(_MarkerRequests(self), settings, self._timer, channels)
        # Unfinished transactions by partition of __transaction_state.
        self._pending: dict[int, set[_PendingTransaction]] = {}
        # Partitions that are not served yet, by transaction. A slice is scheduled while there are
        # some.
        self._later: deque[tuple[_PendingTransaction, list[TopicPartition]]] = deque()
        # Number of markers that wait because their partitions have no known leader.
        self.unknown_leaders = 0

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
        """Serve the partitions of all dispatched transactions. Yields after each step.

        An error of one transaction does not stop the others.
        """
        while self._later:
            pending, partitions = self._later[0]
            try:
                yield from self._serve(pending, partitions)
            except Exception as error:  # noqa: BLE001 - the other transactions get their markers
                if isinstance(error, AssertionError):
                    raise_later(self._timer, error)
                _log.exception(
                    "Transaction markers cannot be written, retrying: transactional_id=%s",
                    pending.markers.transactional_id,
                )
                missing = [key for key in partitions if key in pending.remaining]
                self._retry(pending, missing, _RETRY_UNEXPECTED_MS)
            self._later.popleft()

    def _serve(
        self, pending: _PendingTransaction, partitions: list[TopicPartition]
    ) -> Generator[None, None, None]:
        """Write or queue the markers of one transaction. Yields after each step."""
        for some in in_parts(partitions, _FOUND_AT_ONCE):
            if pending.is_done:
                return
            local = self._send_to_others(pending, some)
            if not local:
                yield
            for part in in_parts(local, WRITTEN_AT_ONCE):
                if pending.is_done:
                    return
                self._writer.write(pending.ending, part, partial(self.on_result, pending))
                yield

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
            if not self.requests.add(broker_id, (_Part(pending, keys),)):
                self._retry(pending, keys)
        if leaderless:
            if not pending.has_unknown_leader:
                # One marker, as Kafka counts: it carries all partitions of the transaction.
                pending.has_unknown_leader = True
                self.unknown_leaders += 1
            self._retry(pending, leaderless)
        for key in gone:
            self.on_result(pending, key, ErrorCode.NONE)
        return local

    def _retry(
        self,
        pending: _PendingTransaction,
        partitions: list[TopicPartition],
        delay_ms: float = _RETRY_MS,
    ) -> None:
        is_scheduled = bool(pending.retried)
        pending.retried += partitions
        if partitions and not is_scheduled:
            self._timer.call_later(delay_ms, partial(self._send_again, pending))

    def retry_failed(
        self, pending: _PendingTransaction, keys: list[TopicPartition], error: ErrorCode
    ) -> None:
        """Look up the leaders again, and send the markers to them, after a request has failed."""
        is_expected = error is not ErrorCode.UNKNOWN_SERVER_ERROR
        self._retry(pending, keys, _RETRY_MS if is_expected else _RETRY_UNEXPECTED_MS)

    def _send_again(self, pending: _PendingTransaction) -> None:
        partitions, pending.retried = pending.retried, []
        self.unknown_leaders -= pending.has_unknown_leader
        pending.has_unknown_leader = False
        if not pending.is_done:
            self._dispatch(pending, partitions)

    def on_result(
        self, pending: _PendingTransaction, key: TopicPartition, error: ErrorCode
    ) -> None:
        """Handle the result for a partition."""
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
            is_expected = error in _RETRIED
            if not is_expected:
                _log.error(
                    "Transaction marker rejected, retrying: partition=%s "
                    "transactional_id=%s error=%s",
                    key,
                    pending.markers.transactional_id,
                    error.name,
                )
            self._retry(pending, [key], _RETRY_MS if is_expected else _RETRY_UNEXPECTED_MS)

    def _end(self, pending: _PendingTransaction, error: ErrorCode) -> None:
        pending.is_done = True
        unfinished = self._pending.get(pending.markers.coordinator_partition)
        if unfinished is not None:
            unfinished.discard(pending)
        pending.on_done(error)


class _MarkerRequests:
    """The markers for one other broker: WriteTxnMarkers requests."""

    __slots__ = ("_sender",)

    def __init__(self, sender: NetworkMarkerSender) -> None:
        self._sender = sender

    def take(self, waiting: deque[_Part]) -> list[_Part]:
        """Return markers, those of one transaction together. Drop those of ended attempts."""
        taken: list[_Part] = []
        partitions = 0
        while waiting and len(taken) < _BATCH_MAX and partitions < _BATCH_PARTITIONS_MAX:
            part = waiting.popleft()
            if part.pending.is_done:
                continue
            if taken and taken[-1].pending is part.pending:
                taken[-1].keys.extend(part.keys)
            else:
                taken.append(part)
            partitions += len(part.keys)
        return taken

    def make_request(self, request: PartsRequest[_Part]) -> None:
        """Make the request."""
        markers = [_marker(pending.ending, keys) for pending, keys in request.parts]
        request.send(WriteTxnMarkersRequest(markers=markers))

    def read(self, response: WriteTxnMarkersResponse) -> _Results:
        """Return the errors of a response."""
        results: _Results = {}
        for marker in response.markers:
            of_producer = results.setdefault(marker.producer_id, {})
            for topic in marker.topics:
                for each in topic.partitions:
                    key = TopicPartition(topic.name, each.partition_index)
                    of_producer[key] = ErrorCode.of(each.error_code)
        return results

    def on_result(self, part: _Part, results: _Results) -> None:
        """Pass the results of a transaction on. Markers without a result are sent again."""
        pending, keys = part
        found = results.get(pending.ending.producer_id, {})
        for key in keys:
            self._sender.on_result(pending, key, found.get(key, ErrorCode.REQUEST_TIMED_OUT))

    def on_failed(self, part: _Part, error: ErrorCode) -> None:
        """Send the markers again, after a lost connection at the current leader."""
        self._sender.retry_failed(part.pending, part.keys, error)


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
