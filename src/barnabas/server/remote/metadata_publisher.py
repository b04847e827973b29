"""Writes events of segments to `__remote_log_metadata`, and waits until they are read again.

Kafka's ProducerManager and RemotePartitionMetadataStore. An event is done when the tail of this
broker has read the same bytes, whether the response to the write has arrived or not: the result of
the event depends on the events before it. Writes are repeated, so an event may be written twice, or
behind later events of other brokers. Readers drop events that come too late.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.record.builder import BatchBuilder
from barnabas.server.peers.peer_queues import TIMEOUT_MS, Backoff, PeerQueues, PeerSettings
from barnabas.server.peers.produce_requests import PRODUCE_VERSION, errors_of, produce_request
from barnabas.storage.remote_keys import REMOTE_LOG_TOPIC
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable

    from barnabas.protocol.messages.produce import ProduceResponse
    from barnabas.server.peers.peer_queues import PartsRequest, PeerDependencies
    from barnabas.storage.remote.segment_states import Applied
    from barnabas.storage.topic_partition import TopicIdPartition

    OnDone = Callable[[Applied | ErrorCode], None]

_log = logging.getLogger(__name__)

# Events that are being written, or that wait to be read.
_EVENTS_MAX = 10_000
# Bytes of the events of a request, so that a batch fits into any sensible max.message.bytes.
_REQUEST_BYTES_MAX = 256 << 10
# The delay before each repetition. The deadline of the event ends them.
_BACKOFF = Backoff(first_ms=100.0)
_NONE = ErrorCode.NONE
# Errors after which the event is written again: the leader moves, its replicas are not in sync, the
# topic is just being created, or the network fails.
_RETRIED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class _PendingEvent:
    """An event that is being written, or that was written and is not read yet."""

    __slots__ = ("deadline_ms", "index", "is_done", "on_done", "retries", "value", "where")

    def __init__(
        self, where: TopicIdPartition, index: int, value: bytes, deadline_ms: float, on_done: OnDone
    ) -> None:
        # The user partition and the metadata partition.
        self.where = where
        self.index = index
        self.value = value
        # End of the wait (ms, monotonic).
        self.deadline_ms = deadline_ms
        self.on_done = on_done
        # Whether `on_done` was called.
        self.is_done = False
        # Number of repetitions, see `PeerQueues.retry`.
        self.retries = 0


class MetadataPublisher:
    """Sends events to the leaders of their metadata partitions."""

    def __init__(self, wait_ms: int, peers: PeerDependencies) -> None:
        """Create without events.

        Args:
            wait_ms: the longest time until an event is read again.
            peers: the leaders, and channels to all brokers including this one.
        """
        self._wait_ms = wait_ms
        self._clock, self._timer, self._cluster = peers.clock, peers.timer, peers.cluster
        self._node_id = peers.node_id
        settings = PeerSettings(
            "remote-log-metadata-writer",
            PRODUCE_VERSION,
            _EVENTS_MAX,
            no_leader=ErrorCode.LEADER_NOT_AVAILABLE,
            no_room=ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        )
        self._queues: PeerQueues[_PendingEvent, dict[TopicPartition, ErrorCode]] = PeerQueues(
            self, settings, peers
        )
        # By value, in the order of their deadlines: all have the same time.
        self._pending: dict[bytes, list[_PendingEvent]] = {}
        # Whether a timer ends the wait for the oldest event.
        self._is_timer_set = False

    def __len__(self) -> int:
        return len(self._pending)

    def write(self, where: TopicIdPartition, index: int, value: bytes, on_done: OnDone) -> None:
        """Write an event.

        Args:
            where: the user partition.
            index: the metadata partition.
            value: the encoded event.
            on_done: gets the result of the event, or the error, in a later turn.
                THROTTLING_QUOTA_EXCEEDED: too many events are being written.
        """
        if len(self._pending) >= _EVENTS_MAX:
            refusal = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            self._timer.call_soon(partial(_report, on_done, refusal))
            return
        deadline_ms = self._clock.monotonic_ms() + self._wait_ms
        event = _PendingEvent(where, index, value, deadline_ms, on_done)
        self._pending.setdefault(value, []).append(event)
        self._set_timer()
        self.dispatch([event])

    def on_applied(self, value: bytes, applied: Applied) -> None:
        """Report the result of an event that the tail has read."""
        for event in self._pending.pop(value, ()):
            self._end(event, applied)

    def cancel(self, where: TopicIdPartition) -> None:
        """Give up the events of a user partition that this broker no longer reads."""
        for events in list(self._pending.values()):
            for event in events:
                if event.where == where:
                    self._give_up(event, ErrorCode.REPLICA_NOT_AVAILABLE)

    def close(self) -> None:
        """Drop all events without a result."""
        for events in self._pending.values():
            for event in events:
                event.is_done = True
        self._pending.clear()

    # Ends.

    def _end(self, event: _PendingEvent, result: Applied | ErrorCode) -> None:
        event.is_done = True
        self._timer.call_soon(partial(_report, event.on_done, result))

    def _give_up(self, event: _PendingEvent, error: ErrorCode) -> None:
        """Report an error, unless the event was read meanwhile."""
        events = self._pending.get(event.value, [])
        if event in events:
            events.remove(event)
            if not events:
                del self._pending[event.value]
            self._end(event, error)

    def _set_timer(self) -> None:
        if self._pending and not self._is_timer_set:
            self._is_timer_set = True
            oldest = next(iter(self._pending.values()))[0]
            delay_ms = oldest.deadline_ms - self._clock.monotonic_ms()
            self._timer.call_later(max(1.0, delay_ms), self._on_timer)

    def _on_timer(self) -> None:
        self._is_timer_set = False
        now_ms = self._clock.monotonic_ms()
        while self._pending:
            oldest = next(iter(self._pending.values()))[0]
            if oldest.deadline_ms > now_ms:
                break
            _log.warning(
                "Event of a segment was not read again in time: partition=%s metadata_partition=%d "
                "wait_ms=%d",
                oldest.where.topic_partition,
                oldest.index,
                self._wait_ms,
            )
            self._give_up(oldest, ErrorCode.REQUEST_TIMED_OUT)
        self._set_timer()

    # Requests to leaders: Produce.

    def partition_of(self, part: _PendingEvent) -> TopicPartition:
        """Return the metadata partition."""
        return TopicPartition(REMOTE_LOG_TOPIC, part.index)

    def dispatch(self, parts: list[_PendingEvent]) -> None:
        """Queue events for their leaders."""
        own = self._queues.dispatch([part for part in parts if not part.is_done])
        if own:
            # A request to this broker also has all waiting events.
            self._queues.add(self._node_id, own)

    def take(self, waiting: deque[_PendingEvent]) -> list[_PendingEvent]:
        """Return the first events that fit into a request."""
        taken: list[_PendingEvent] = []
        size = 0
        while waiting and (not taken or size + len(waiting[0].value) <= _REQUEST_BYTES_MAX):
            event = waiting.popleft()
            if not event.is_done:
                taken.append(event)
                size += len(event.value)
        return taken

    def make_request(self, request: PartsRequest[_PendingEvent]) -> None:
        """Make a batch for each metadata partition."""
        now_ms = self._clock.wall_ms()
        builders: dict[TopicPartition, BatchBuilder] = {}
        for event in request.parts:
            where = self.partition_of(event)
            builder = builders.get(where)
            if builder is None:
                builder = builders[where] = BatchBuilder()
            builder.append(now_ms, None, event.value)
        batches = {where: builder.build() for where, builder in builders.items()}
        request.send(produce_request(self._cluster, batches, int(TIMEOUT_MS)))

    def results_of(self, response: ProduceResponse) -> dict[TopicPartition, ErrorCode]:
        """Return the errors of a response."""
        return errors_of(self._cluster, response)

    def on_result(self, part: _PendingEvent, results: dict[TopicPartition, ErrorCode]) -> None:
        """Wait for the tail after a write, and repeat a failed one."""
        error = results.get(self.partition_of(part), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if error is not _NONE:
            self.on_failed(part, error)

    def on_failed(self, part: _PendingEvent, error: ErrorCode) -> None:
        """Repeat a write, or report its error."""
        if part.is_done:
            return
        if error not in _RETRIED:
            self._give_up(part, error)
        else:
            # The timer ends the repetitions.
            self._queues.retry(part, _BACKOFF)


def _report(on_done: OnDone, result: Applied | ErrorCode) -> None:
    try:
        on_done(result)
    except AssertionError:
        raise
    except Exception:  # noqa: BLE001 - the callbacks of other events follow
        _log.exception("Unexpected error after an event of a segment")
