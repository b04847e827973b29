"""Share sessions with all leaders: fetches, acknowledgements and their errors (KIP-932).

Each broker has at most one request of this member in flight, because requests of a share session
are numbered. Acknowledgements travel with the next fetch, or alone if no fetch is due, if the user
commits, or if they renew locks.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.connections import Call
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.share.acquired_records import (
    AcquiredRange,
    AcquiredRecords,
    Decoding,
    ShareSource,
)
from barnabas.client.share.share_session import FINAL_EPOCH, AckGroup, ShareSession, joined
from barnabas.client.topic_partition import TopicPartition
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from barnabas.protocol.messages.share_consumers import PartitionData, ShareFetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.share.share_session import PartitionId, ShareRequests
    from barnabas.protocol.messages import share_acknowledge
    from barnabas.protocol.schema import Message

__all__ = ["ShareFetchListener", "ShareFetcher"]

_log = logging.getLogger(__name__)

_LOST_SESSION = frozenset({
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
})  # fmt: skip
_WRONG_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class ShareFetchListener(NamedTuple):
    """Functions of the consumer that the fetcher calls."""

    # The assigned partitions that the user reads, with their topic ids.
    partitions: Callable[[], Iterable[tuple[TopicPartition, bytes]]]
    # Brokers whose sessions must stay open, because the user has records of them.
    busy_nodes: Callable[[], set[int]]
    # Called when records or an error have arrived.
    wake: Callable[[], None]


class ShareFetcher:
    """Acquires records while `is_wanted` is set, and sends acknowledgements.

    Args:
        cluster: Reaches the brokers.
        requests: Builds the requests of the member.
        decoding: CRC checks and deserializers.
        listener: Functions of the consumer.
    """

    def __init__(
        self,
        cluster: Cluster,
        requests: ShareRequests,
        decoding: Decoding,
        listener: ShareFetchListener,
    ) -> None:
        self._cluster = cluster
        self._requests = requests
        self._decoding = decoding
        self._listener = listener
        self._sessions: dict[int, ShareSession] = {}
        # Acquired records that no poll has returned, with the time (ms, monotonic clock) at which
        # their locks expire.
        self._buffer: deque[tuple[AcquiredRecords, float]] = deque()
        # Errors that the next poll raises, one at a time.
        self.errors: deque[ClientError] = deque()
        # Whether a poll is waiting for records. Only then records are acquired.
        self.is_wanted = False
        # For how long acquired records are locked (ms), as of the last response; None before.
        self.lock_timeout_ms: int | None = None
        # With record_limit, the broker that was fetched from last: the next fetch goes to another.
        self._last_node = -1
        # Called once when all sessions have ended; None unless `end_sessions` waits for that.
        self._on_ended: Callable[[], None] | None = None
        self._closed = False
        cluster.on_update(self.pump)

    # Records

    @property
    def has_records(self) -> bool:
        """Whether acquired records are buffered."""
        return bool(self._buffer)

    def first(self) -> AcquiredRecords | None:
        """Return the first buffered records whose locks have not expired; None if there are none.

        The broker has released records with expired locks, and delivers them to another member.
        """
        now_ms = self._cluster.runtime.clock.monotonic_ms()
        while self._buffer and self._buffer[0][1] <= now_ms:
            self._buffer.popleft()
        return self._buffer[0][0] if self._buffer else None

    def drop_first(self) -> None:
        """Remove the first buffered records."""
        self._buffer.popleft()

    def start_acquiring(self) -> None:
        """Acquire records until `is_wanted` is cleared or some have arrived."""
        self.is_wanted = True
        self.pump()

    @property
    def trouble(self) -> ClientError | None:
        """Error of a broker that does not respond; None while all of them do."""
        return next((s.error for s in self._sessions.values() if s.error is not None), None)

    # Acknowledgements

    def acknowledge(self, groups: Iterable[AckGroup], *, is_urgent: bool) -> None:
        """Send acknowledgements to the brokers that acquired the records.

        Args:
            groups: The acknowledgements. Each `on_done` is called once, possibly before this
                method returns.
            is_urgent: Whether they do not wait for the next fetch.
        """
        for group in groups:
            session = self._session(group.source.node_id)
            session.pending.append(group)
            session.is_urgent = session.is_urgent or is_urgent or group.acks.has_renewals
        self.pump()

    def end_sessions(self, on_done: Callable[[], None]) -> None:
        """Send pending acknowledgements and close all sessions; the brokers release all records.

        Args:
            on_done: Called at the end, possibly before this method returns.
        """
        self.is_wanted = False
        self._on_ended = on_done
        for session in self._sessions.values():
            session.retry.cancel()
            session.is_ending = session.is_open
        self.pump()
        self._check_ended()

    def _check_ended(self) -> None:
        """Report the end of all sessions to the caller of `end_sessions`."""
        on_ended = self._on_ended
        if on_ended is not None and not any(each.is_ending for each in self._sessions.values()):
            self._on_ended = None
            self._buffer.clear()
            on_ended()

    def abandon_sessions(self) -> None:
        """Stop waiting for responses to the requests that close the sessions."""
        self._on_ended = None
        self._buffer.clear()
        for session in self._sessions.values():
            session.reset()

    def close(self) -> None:
        """Stop; responses that are still in flight are dropped."""
        self._closed = True
        self._cluster.remove_listener(self.pump)
        for session in self._sessions.values():
            session.retry.cancel()

    def _session(self, node_id: int) -> ShareSession:
        session = self._sessions.get(node_id)
        if session is None:
            session = ShareSession(node_id, self._cluster.retry_timer())
            self._sessions[node_id] = session
        return session

    # Requests

    def pump(self) -> None:
        """Send the requests that are due, to all brokers without a request in flight."""
        if self._closed:
            return
        wanted = self._wanted_by_node()
        for session in list(self._sessions.values()):
            if session.in_flight or session.retry.is_scheduled:
                continue
            if not session.is_open:
                self._fail(session.take_pending(), ErrorCode.SHARE_SESSION_NOT_FOUND)
            self._send_next(session, wanted.get(session.node_id, {}))

    def _send_next(self, session: ShareSession, wanted: Mapping[PartitionId, object]) -> None:
        may_fetch = bool(wanted) and self._may_fetch(session)
        if not session.is_open:
            if may_fetch:
                self._send_fetch(session, wanted)
        elif session.is_ending or session.is_urgent:
            self._send_acknowledge(session)
        elif may_fetch:
            self._send_fetch(session, wanted)
        elif session.pending:
            self._send_acknowledge(session)
        elif not wanted and self.is_wanted and self._is_unused(session):
            session.is_ending = True
            self._send_acknowledge(session)

    def _is_unused(self, session: ShareSession) -> bool:
        """Return whether no partition of this consumer is left on the broker."""
        return session.node_id not in self._listener.busy_nodes() and all(
            acquired.source.node_id != session.node_id for acquired, _ in self._buffer
        )

    def _may_fetch(self, session: ShareSession) -> bool:
        """Return whether the broker may be fetched from now.

        With record_limit one broker is fetched from at a time, because each may acquire as many
        records as the limit allows.
        """
        if not self._requests.is_record_limit:
            return True
        others = [s for s in self._sessions.values() if s is not session]
        return not any(s.in_flight for s in others) and (
            self._last_node != session.node_id
            or not any(s.node_id in self._wanted_by_node() for s in others)
        )

    def _wanted_by_node(self) -> dict[int, dict[PartitionId, object]]:
        """Return the partitions to fetch by leader; empty while no poll waits for records."""
        if not self.is_wanted or self._buffer:
            return {}
        metadata = self._cluster.metadata
        wanted: dict[int, dict[PartitionId, object]] = {}
        is_leader_missing = False
        for tp, topic_id in self._listener.partitions():
            node_id = metadata.leader(tp)
            if node_id in metadata.nodes:
                wanted.setdefault(node_id, {})[topic_id, tp.partition] = None
                self._session(node_id)
            else:
                is_leader_missing = True
        if is_leader_missing:
            self._cluster.request_update()
        return wanted

    def _send_fetch(self, session: ShareSession, wanted: Mapping[PartitionId, object]) -> None:
        groups = session.take_pending()
        epoch = session.epoch
        listed, forgotten = session.plan_fetch(wanted.keys(), groups)
        session.on_sent()
        self._last_node = session.node_id

        def build(version: int) -> Message:
            return self._requests.fetch(version, epoch, listed, forgotten)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if self._begin_response(session, epoch, groups, error):
                assert isinstance(response, ShareFetchResponse)
                self._on_fetched(session, groups, response)

        config = self._cluster.config
        timeout_ms = config.fetch_max_wait_ms + config.request_timeout_ms
        self._cluster.call(session.node_id, Call(ApiKey.SHARE_FETCH, build, on_done, timeout_ms))

    def _send_acknowledge(self, session: ShareSession) -> None:
        groups = session.take_pending()
        epoch, partitions = session.epoch, joined(groups)
        session.on_sent()

        def build(_version: int) -> Message:
            return self._requests.acknowledge(epoch, partitions)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            if self._begin_response(session, epoch, groups, error):
                assert isinstance(response, ShareAcknowledgeResponse)
                self._on_acknowledged(session, groups, response)

        self._cluster.call(session.node_id, Call(ApiKey.SHARE_ACKNOWLEDGE, build, on_done))

    # Responses

    def _begin_response(
        self, session: ShareSession, epoch: int, groups: list[AckGroup], error: ClientError | None
    ) -> bool:
        """Mark the request as ended; return whether there is a response to handle."""
        session.in_flight = False
        if self._closed:
            return False
        session.error = error
        if epoch == FINAL_EPOCH or error is not None:
            session.reset()
        if error is None:
            return True
        self._finish(groups, error)
        if epoch != FINAL_EPOCH:
            if error.retriable:
                self._cluster.request_update()
            else:
                self._raise(error)
            session.retry.retry(self.pump)
        self._check_ended()
        return False

    def _on_fetched(
        self, session: ShareSession, groups: list[AckGroup], response: ShareFetchResponse
    ) -> None:
        if response.error_code:
            self._on_refused(session, groups, response.error_code, response.error_message)
            return
        self._note_lock_timeout(response.acquisition_lock_timeout_ms)
        results: dict[PartitionId, ClientError | None] = {}
        has_errors = False
        for topic in response.responses:
            for data in topic.partitions:
                partition = (topic.topic_id, data.partition_index)
                results[partition] = self._acknowledge_error(
                    partition, data.acknowledge_error_code, data.acknowledge_error_message
                )
                if data.error_code:
                    has_errors = True
                    self._on_partition_error(topic.topic_id, data)
                elif data.acquired_records:
                    self._on_records(session, topic.topic_id, data)
        self._end_response(session, groups, results, has_errors=has_errors)

    def _on_records(self, session: ShareSession, topic_id: bytes, data: PartitionData) -> None:
        tp = self._name(topic_id, data.partition_index)
        if tp is None:
            return
        received = b"" if data.records is None else data.records
        assert isinstance(received, memoryview | bytes), type(received)
        # The only copy: the records are a view of the connection's receive buffer.
        records = bytes(received)
        ranges = [
            AcquiredRange(each.first_offset, each.last_offset, each.delivery_count)
            for each in data.acquired_records
        ]
        source = ShareSource(session.node_id, topic_id, tp)
        lock_ms = self.lock_timeout_ms or float("inf")
        expires_ms = self._cluster.runtime.clock.monotonic_ms() + lock_ms
        acquired = AcquiredRecords(source, records, ranges, self._decoding)
        self._buffer.append((acquired, expires_ms))

    def _on_acknowledged(
        self, session: ShareSession, groups: list[AckGroup], response: ShareAcknowledgeResponse
    ) -> None:
        if response.error_code:
            self._on_refused(session, groups, response.error_code, response.error_message)
            return
        self._note_lock_timeout(response.acquisition_lock_timeout_ms)
        results: dict[PartitionId, ClientError | None] = {}
        for topic in response.responses:
            for data in topic.partitions:
                partition = (topic.topic_id, data.partition_index)
                results[partition] = self._acknowledge_error(
                    partition, data.error_code, data.error_message
                )
                if data.error_code in _WRONG_LEADER:
                    self._on_wrong_leader(topic.topic_id, data)
        self._end_response(session, groups, results, has_errors=False)

    def _end_response(
        self,
        session: ShareSession,
        groups: list[AckGroup],
        results: Mapping[PartitionId, ClientError | None],
        *,
        has_errors: bool,
    ) -> None:
        for group in groups:
            missing = broker_error(ErrorCode.INVALID_RECORD_STATE, f"acknowledge {group.source.tp}")
            group.on_done(results.get(group.partition, missing))
        if has_errors:
            # Fetches that are refused at once must not repeat without a delay.
            session.retry.retry(self.pump)
        else:
            session.retry.reset()
        self.pump()
        self._check_ended()
        self._listener.wake()

    def _on_refused(
        self, session: ShareSession, groups: list[AckGroup], code: int, message: str | None
    ) -> None:
        """Handle an error of a whole request."""
        error = broker_error(code, f"share session with broker {session.node_id}", message)
        self._finish(groups, error)
        session.reset()
        self._check_ended()
        is_first = session.retry.failures == 0
        if code in _LOST_SESSION and is_first:
            session.retry.count_failure()
            self.pump()
            return
        if not error.retriable:
            self._raise(error)
        session.retry.retry(self.pump)

    def _finish(self, groups: Iterable[AckGroup], error: ClientError) -> None:
        for group in groups:
            group.on_done(error)
        self._listener.wake()

    def _fail(self, groups: Iterable[AckGroup], code: ErrorCode) -> None:
        for group in groups:
            group.on_done(broker_error(code, f"acknowledge {group.source.tp}"))

    def _raise(self, error: ClientError) -> None:
        # One error of a kind is enough: polls raise them one at a time.
        if all(str(each) != str(error) for each in self.errors):
            self.errors.append(error)
        self._listener.wake()

    def _note_lock_timeout(self, timeout_ms: int) -> None:
        if timeout_ms > 0:
            self.lock_timeout_ms = timeout_ms

    # Errors of partitions

    def _on_partition_error(self, topic_id: bytes, data: PartitionData) -> None:
        tp = self._name(topic_id, data.partition_index)
        error = _error_of(data.error_code, data.error_message, f"share fetch of {tp}")
        assert error is not None
        if data.error_code in _WRONG_LEADER:
            self._on_wrong_leader(topic_id, data)
        elif error.retriable or tp is None:
            self._cluster.request_update()
        else:
            self._raise(error)
        _log.info("share fetch refused: partition=%s error=%s", tp, error)

    def _acknowledge_error(
        self, partition: PartitionId, code: int, message: str | None
    ) -> ClientError | None:
        """Return the error of acknowledgements of one partition, or None."""
        if not code:
            return None
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            # Apache Kafka's response from a former leader, which has dropped the share partition.
            message = message or "the broker does not have this share partition (any more)"
        error = broker_error(code, f"acknowledge {self._name(*partition)}", message)
        if error.retriable:
            self._cluster.request_update()
        return error

    def _on_wrong_leader(
        self, topic_id: bytes, data: PartitionData | share_acknowledge.PartitionData
    ) -> None:
        tp = self._name(topic_id, data.partition_index)
        leader = data.current_leader
        if tp is not None:
            self._cluster.metadata.move_leader(tp, leader.leader_id, leader.leader_epoch)
        self._cluster.request_update()

    def _name(self, topic_id: bytes, number: int) -> TopicPartition | None:
        name = self._cluster.metadata.names.get(topic_id)
        return None if name is None else TopicPartition(name, number)


def _error_of(code: int, message: str | None, subject: str) -> ClientError | None:
    return broker_error(code, subject, message) if code else None
