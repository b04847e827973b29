"""Writes and sends the markers of ended transactions (Kafka's TransactionMarkerChannelManager).

Markers for partitions of this broker are written directly. Markers are written from the next turn
of the loop on, after the response to the request that ends the transaction. A turn serves a limited
number of partitions.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.runtime.coordinator_record import TransactionEnding, build_end_marker
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from barnabas.server.peers.peer_queues import Backoff, PeerQueues, PeerSettings, raise_later
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import in_parts, run_in_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.coordinator.transaction.transaction_metadata import Markers
    from barnabas.protocol.messages.transactions import WriteTxnMarkersResponse
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.runtime.clock import Clock
    from barnabas.server.peers.peer_queues import PartsRequest, PeerDependencies


_log = logging.getLogger(__name__)

_ACKS_ALL = -1
_TIMEOUT_MS = 30_000
# Markers to write in one step. Each takes 0.2 ms, and up to 5 ms on a slow or busy machine.
WRITTEN_AT_ONCE = 4
# Errors of a group coordinator that is on another broker or not ready. As in Kafka, the sender
# finds the leader again.
_NOT_READY = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)


class MarkerWriter:
    """Appends markers. The group coordinator appends the markers for committed offsets."""

    def __init__(self, replicas: ReplicaManager, groups: GroupCoordinator, clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(
        self,
        ending: TransactionEnding,
        partitions: Iterable[TopicPartition],
        on_result: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        """Append the marker to partitions that exist.

        Args:
            ending: the marker.
            partitions: the partitions.
            on_result: called once for each partition, with NONE after the commit of its marker.
        """
        batches: dict[TopicPartition, memoryview] = {}
        now_ms = self._clock.wall_ms()
        for partition in partitions:
            if partition.topic == OFFSETS_TOPIC:
                self._end_offsets(ending, partition, on_result)
            else:
                batches[partition] = memoryview(build_end_marker(ending, now_ms))
        if not batches:
            return

        def on_appended(results: dict[TopicPartition, ProduceResult]) -> None:
            for partition, result in results.items():
                on_result(partition, result.error)

        self._replicas.append_records(_TIMEOUT_MS, _ACKS_ALL, batches, ending.origin, on_appended)

    def _end_offsets(
        self,
        ending: TransactionEnding,
        partition: TopicPartition,
        on_result: Callable[[TopicPartition, ErrorCode], None],
    ) -> None:
        def on_done(error: ErrorCode) -> None:
            is_ready = error not in _NOT_READY
            on_result(partition, error if is_ready else ErrorCode.NOT_LEADER_OR_FOLLOWER)

        self._groups.runtime.complete_transaction(partition.partition, ending, on_done)


_VERSION = 2
_BACKOFF = Backoff(first_ms=50.0)
# Backoff after an error that another attempt will probably repeat.
_UNEXPECTED = Backoff(first_ms=1_000.0)
# Partitions whose marker waits for one broker. Further ones are sent later.
_QUEUE_MAX = 100_000
# Maximum numbers of transactions and of their partitions in a request.
_BATCH_TRANSACTIONS_MAX = 500
_BATCH_MAX = 2_000
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

    __slots__ = ("ending", "is_done", "leaderless", "markers", "on_done", "on_written", "remaining")

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
        # Partitions without a leader, whose marker waits for a retry.
        self.leaderless: set[TopicPartition] = set()
        # Whether the attempt has ended, or its state partition has moved. Never reset.
        self.is_done = False


class _Part(msgspec.Struct, eq=False):
    """The marker of a transaction for one partition."""

    pending: _PendingTransaction
    key: TopicPartition
    retries: int = 0


# Errors by producer id and partition.
_Results = dict[tuple[int, TopicPartition], ErrorCode]


class NetworkMarkerSender:
    """The `MarkerSender` of a broker."""

    def __init__(self, writer: MarkerWriter, peers: PeerDependencies) -> None:
        """Create the sender.

        Args:
            writer: writes the markers of partitions that this broker leads.
            peers: access to other brokers.
        """
        self._cluster = peers.cluster
        self._writer = writer
        self._clock, self._timer = peers.clock, peers.timer
        settings = PeerSettings(
            "txn-marker-sender",
            _VERSION,
            _QUEUE_MAX,
            no_leader=ErrorCode.LEADER_NOT_AVAILABLE,
            no_room=ErrorCode.NETWORK_EXCEPTION,
        )
        self.queues = PeerQueues(self, settings, peers)
        # Unfinished transactions by partition of __transaction_state.
        self._pending: dict[int, set[_PendingTransaction]] = {}
        # Markers that are not served yet, by transaction. A slice is scheduled while there are
        # some.
        self._later: deque[tuple[_PendingTransaction, list[_Part]]] = deque()
        # Number of transactions with markers that wait because their partitions have no leader.
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
        self.dispatch([_Part(pending, key) for key in markers.partitions])

    def forget(self, coordinator_partition: int) -> None:
        """Drop the markers of a state partition that this broker no longer leads."""
        for pending in self._pending.pop(coordinator_partition, ()):
            pending.is_done = True

    def dispatch(self, parts: list[_Part]) -> None:
        """Write or queue markers for the leaders from the next turn on.

        The response to the request that ends the transaction is sent in this turn.
        """
        by_transaction: dict[_PendingTransaction, list[_Part]] = {}
        for part in parts:
            pending = part.pending
            if part.key in pending.leaderless:
                pending.leaderless.remove(part.key)
                self.unknown_leaders -= not pending.leaderless
            if not pending.is_done:
                by_transaction.setdefault(pending, []).append(part)
        is_scheduled = bool(self._later)
        self._later += by_transaction.items()
        if self._later and not is_scheduled:
            self._timer.call_soon(self._start_slices)

    def _start_slices(self) -> None:
        run_in_slices(self._steps(), self._clock, self._timer.call_soon, lambda _: None)

    def _steps(self) -> Generator[None, None, None]:
        """Serve the partitions of all dispatched transactions. Yields after each step.

        An error of one transaction does not stop the others.
        """
        while self._later:
            pending, parts = self._later[0]
            try:
                yield from self._serve(pending, parts)
            except Exception as error:  # noqa: BLE001 - the other transactions get their markers
                if isinstance(error, AssertionError):
                    raise_later(self._timer, error)
                _log.exception(
                    "Transaction markers cannot be written, retrying: transactional_id=%s",
                    pending.markers.transactional_id,
                )
                for part in parts:
                    if part.key in pending.remaining:
                        self.queues.retry(part, _UNEXPECTED)
            self._later.popleft()

    def _serve(
        self, pending: _PendingTransaction, parts: list[_Part]
    ) -> Generator[None, None, None]:
        """Write or queue the markers of one transaction. Yields after each step."""
        on_result = partial(self._on_result, pending)
        for some in in_parts(parts, _FOUND_AT_ONCE):
            if pending.is_done:
                return
            own = self.queues.dispatch(some)
            if not own:
                yield
            for written in in_parts(own, WRITTEN_AT_ONCE):
                if pending.is_done:
                    return
                self._writer.write(pending.ending, [part.key for part in written], on_result)
                yield

    def _on_result(
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
            self.queues.retry(_Part(pending, key), _BACKOFF if is_expected else _UNEXPECTED)

    def _end(self, pending: _PendingTransaction, error: ErrorCode) -> None:
        pending.is_done = True
        unfinished = self._pending.get(pending.markers.coordinator_partition)
        if unfinished is not None:
            unfinished.discard(pending)
        pending.on_done(error)

    # Requests to other brokers: WriteTxnMarkers.

    def partition_of(self, part: _Part) -> TopicPartition:
        """Return the partition of a marker."""
        return part.key

    def take(self, waiting: deque[_Part]) -> list[_Part]:
        """Return markers, and drop those of ended attempts."""
        taken: list[_Part] = []
        transactions: set[_PendingTransaction] = set()
        while waiting and len(taken) < _BATCH_MAX:
            part = waiting[0]
            if not part.pending.is_done:
                transactions.add(part.pending)
                if len(transactions) > _BATCH_TRANSACTIONS_MAX:
                    break
                taken.append(part)
            waiting.popleft()
        return taken

    def make_request(self, request: PartsRequest[_Part]) -> None:
        """Make the request."""
        by_transaction: dict[_PendingTransaction, list[TopicPartition]] = {}
        for part in request.parts:
            by_transaction.setdefault(part.pending, []).append(part.key)
        markers = [_marker(pending.ending, keys) for pending, keys in by_transaction.items()]
        request.send(WriteTxnMarkersRequest(markers=markers))

    def results_of(self, response: WriteTxnMarkersResponse) -> _Results:
        """Return the errors of a response."""
        return {
            (marker.producer_id, TopicPartition(topic.name, each.partition_index)): ErrorCode.of(
                each.error_code
            )
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }

    def on_result(self, part: _Part, results: _Results) -> None:
        """Pass the result of a marker on. A marker without a result is sent again."""
        pending, key = part.pending, part.key
        error = results.get((pending.ending.producer_id, key), ErrorCode.REQUEST_TIMED_OUT)
        self._on_result(pending, key, error)

    def on_failed(self, part: _Part, error: ErrorCode) -> None:
        """Send a marker again to the leader of that time. A deleted partition needs no marker."""
        pending, key = part.pending, part.key
        if error is ErrorCode.LEADER_NOT_AVAILABLE:
            if self._cluster.partition(*key) is None:
                self._on_result(pending, key, ErrorCode.NONE)
                return
            # As in Kafka, the number counts transactions and not partitions.
            self.unknown_leaders += not pending.leaderless
            pending.leaderless.add(key)
        is_expected = error is not ErrorCode.UNKNOWN_SERVER_ERROR
        self.queues.retry(part, _BACKOFF if is_expected else _UNEXPECTED)


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
