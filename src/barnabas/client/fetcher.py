"""Fetching from many partitions at once: sessions, prefetch, recovery (KIP-227, KIP-516, KIP-320).

One request per node is in flight, the next leaves as soon as its answer is in, as long as fewer
than `queued.max.bytes` wait for the user. What comes is handed on as raw record sets, in order
within a partition; a position moves when bytes arrive, and what arrives for a position that has
changed meanwhile is dropped.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections import Call
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    CorruptRecordsError,
    OffsetOutOfRangeError,
    broker_error,
)
from barnabas.client.fetch_request import build_fetch_request
from barnabas.client.fetch_session import FetchPosition, FetchSession
from barnabas.client.metadata_cache import ZERO_ID
from barnabas.client.record_scan import MalformedRecordsError, scan_records
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.versions import FETCH_MAX_BY_NAME
from barnabas.protocol.api_keys import ApiKey
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.fetch import FetchResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from barnabas.client.cluster import Cluster
    from barnabas.protocol.messages.fetch import PartitionData
    from barnabas.protocol.schema import Message

__all__ = ["FetchFailure", "Fetcher", "RecordSet"]

# The broker, or what we know of it, is out of date: look at metadata, then ask again.
_STALE_METADATA = frozenset({
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
})  # fmt: skip


class RecordSet(NamedTuple):
    """Fetched bytes of one partition: whole record batches, as they lie in the log.

    The first batch may begin before `first_offset`, and the last end behind `end_offset`: records
    outside of [first_offset, end_offset) are not part of the set.
    """

    topic: str
    partition: int
    first_offset: int
    # Exclusive: where the next set goes on.
    end_offset: int
    data: bytes
    # End of what consumers can read, as of this answer.
    high_watermark: int
    log_start_offset: int
    # (producer id, first offset) of aborted transactions, with isolation.level=read_committed.
    aborted: tuple[tuple[int, int], ...]


class FetchFailure(NamedTuple):
    """A partition that cannot be read on; it stays stopped until it is assigned anew."""

    topic_partition: TopicPartition
    error: ClientError


class _Partition:
    """What the fetcher knows of one partition that it reads."""

    __slots__ = ("attempts", "delayed", "end", "failing_since_ms", "position", "stopped")

    def __init__(self, position: int, end: int | None) -> None:
        # Offset of the next fetch. Moved by answers only.
        self.position = position
        # Exclusive end of what is wanted, None for no end.
        self.end = end
        # Attempts that failed in a row, and since when.
        self.attempts = 0
        self.failing_since_ms = 0.0
        # In its back-off: not asked for.
        self.delayed = False
        # Read to its end, or failed.
        self.stopped = end is not None and position >= end


class _Node:
    """Fetching from one node: its session, and whether a request is in flight."""

    __slots__ = ("delayed", "error", "failures", "in_flight", "session")

    def __init__(self) -> None:
        self.session = FetchSession()
        # Why the last request got no answer, None since one did.
        self.error: ClientError | None = None
        self.in_flight = False
        self.delayed = False
        self.failures = 0


class Fetcher:
    """Reads the assigned partitions; takes care of leaders, sessions and back-off.

    `on_output` is called when something was put into `output`, or a partition came to its end.
    """

    def __init__(self, cluster: Cluster, on_output: Callable[[], None] = lambda: None) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._on_output = on_output
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._nodes: dict[int, _Node] = {}
        # What was fetched and not yet taken, in order of arrival.
        self._output: deque[RecordSet | FetchFailure] = deque()
        # Bytes in `_output`; no fetch is sent at queued.max.bytes and above.
        self._queued_bytes = 0
        # Partitions that still have something to give (not stopped).
        self._running = 0
        # High watermark and log start offset as last heard, for lag and progress.
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._closed = False
        self._isolation = 1 if self._config.isolation_level == "read_committed" else 0
        cluster.on_update(self.send_fetches)

    # The user's side

    def assign(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Read these partitions too, each from an offset to an exclusive end (None: no end).

        A partition that is read already moves there, and what was fetched of it is dropped.
        """
        self._drop_output(set(ranges))
        for tp, (position, end) in ranges.items():
            before = self._partitions.get(tp)
            if before is not None and not before.stopped:
                self._running -= 1
            state = _Partition(position, end)
            self._partitions[tp] = state
            self._running += not state.stopped
            self._cluster.tracked.add(tp.topic)
        self.send_fetches()

    def _drop_output(self, partitions: set[TopicPartition]) -> None:
        kept: deque[RecordSet | FetchFailure] = deque()
        for item in self._output:
            if isinstance(item, RecordSet):
                if (item.topic, item.partition) not in partitions:
                    kept.append(item)
                else:
                    self._queued_bytes -= len(item.data)
            elif item.topic_partition not in partitions:
                kept.append(item)
        self._output = kept

    @property
    def has_output(self) -> bool:
        """Whether `take` has something to give."""
        return bool(self._output)

    @property
    def is_finished(self) -> bool:
        """Whether every partition came to its end and all was taken."""
        return not self._running and not self._output

    @property
    def trouble(self) -> ClientError | None:
        """Why a broker that is read from does not answer, None while all do."""
        return next((node.error for node in self._nodes.values() if node.error is not None), None)

    def position(self, tp: TopicPartition) -> int:
        """Offset that is asked for next; what was not yet taken lies before it."""
        return self._partitions[tp].position

    def unfinished(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Position and end of the partitions that have not come to their end."""
        return {
            tp: (state.position, state.end)
            for tp, state in self._partitions.items()
            if not state.stopped
        }

    def take(self) -> RecordSet | FetchFailure | None:
        """The next record set or failure, None if there is none now."""
        if not self._output:
            return None
        item = self._output.popleft()
        if isinstance(item, RecordSet):
            was_full = self._queued_bytes >= self._config.queued_max_bytes
            self._queued_bytes -= len(item.data)
            if was_full and self._queued_bytes < self._config.queued_max_bytes:
                self.send_fetches()
        return item

    def close(self) -> None:
        """Stop; answers still under way are dropped. Sessions time out on the broker."""
        self._closed = True
        self._cluster.remove_listener(self.send_fetches)
        self._partitions.clear()
        self._output.clear()

    # Requests

    def send_fetches(self) -> None:
        """Send to each node that has no request in flight what is wanted from it."""
        if self._closed or not self._running:
            return
        if self._queued_bytes >= self._config.queued_max_bytes:
            return
        self._cluster.maybe_update_by_age()
        for node_id, wanted in self._wanted_by_node().items():
            node = self._nodes.get(node_id)
            if node is None:
                node = self._nodes[node_id] = _Node()
            if not node.in_flight and not node.delayed:
                self._send(node_id, node, wanted)

    def _wanted_by_node(self) -> dict[int, dict[TopicPartition, FetchPosition]]:
        metadata = self._cluster.metadata
        max_bytes = self._config.max_partition_fetch_bytes
        wanted: dict[int, dict[TopicPartition, FetchPosition]] = {}
        leaderless = False
        for tp, state in self._partitions.items():
            if state.stopped or state.delayed:
                continue
            info = metadata.partition(tp)
            if info is None or info.leader not in metadata.nodes:
                leaderless = True
                self._note_failure(tp, state, ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            wanted.setdefault(info.leader, {})[tp] = FetchPosition(
                state.position, info.leader_epoch, max_bytes, metadata.topic_id(tp.topic)
            )
        if leaderless:
            self._cluster.request_update()
        return wanted

    def _send(self, node_id: int, node: _Node, wanted: dict[TopicPartition, FetchPosition]) -> None:
        uses_ids = all(position.topic_id != ZERO_ID for position in wanted.values())
        request = node.session.build(wanted, uses_ids=uses_ids)
        node.in_flight = True

        def build(version: int) -> Message:
            return build_fetch_request(request, version, self._config, self._isolation)

        def on_done(response: Message | None, error: ClientError | None) -> None:
            node.in_flight = False
            if self._closed:
                return
            if response is None:
                assert error is not None
                self._on_request_failed(node, error)
            else:
                assert isinstance(response, FetchResponse)
                self._on_response(node, wanted, response)

        max_version = None if uses_ids else FETCH_MAX_BY_NAME
        timeout_ms = self._config.fetch_max_wait_ms + self._config.request_timeout_ms
        self._cluster.call(node_id, Call(ApiKey.FETCH, build, on_done, timeout_ms, max_version))

    # Answers

    def _on_request_failed(self, node: _Node, error: ClientError) -> None:
        """The request as a whole got no answer: a full one follows after a back-off."""
        node.session.reset()
        node.error = error
        if not error.retriable:
            for tp in list(node.session.partitions):
                self._fail(tp, error)
            return
        self._cluster.request_update()
        self._delay_node(node)

    def _delay_node(self, node: _Node) -> None:
        node.failures += 1
        node.delayed = True

        def resume() -> None:
            node.delayed = False
            self.send_fetches()

        delay = self._cluster.retry_backoff.delay_ms(node.failures)
        self._cluster.runtime.timer.call_later(delay, resume)

    def _on_response(
        self, node: _Node, wanted: dict[TopicPartition, FetchPosition], response: FetchResponse
    ) -> None:
        node.error = None
        node.session.on_answer(response.error_code, response.session_id)
        if response.error_code:
            self._on_session_error(node, response.error_code)
            return
        node.failures = 0
        names = self._cluster.metadata.names
        before = len(self._output)
        running = self._running
        for topic in response.responses:
            name = topic.topic or names.get(topic.topic_id)
            if name is None:
                continue
            for partition in topic.partitions:
                tp = TopicPartition(name, partition.partition_index)
                asked = wanted.get(tp)
                state = self._partitions.get(tp)
                if asked is None or state is None or state.position != asked.offset:
                    continue
                if not state.stopped and not state.delayed:
                    self._on_partition(tp, state, partition)
        self.send_fetches()
        if len(self._output) != before or self._running != running:
            self._on_output()

    def _on_session_error(self, node: _Node, error_code: int) -> None:
        """The node dropped the session or a topic id changed: all is asked again, in full."""
        if error_code in (
            ErrorCode.UNKNOWN_TOPIC_ID,
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ):
            self._cluster.request_update()
        if node.failures or error_code not in (
            ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
            ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ):
            self._delay_node(node)
            return
        node.failures = 1
        self.send_fetches()

    def _on_partition(self, tp: TopicPartition, state: _Partition, data: PartitionData) -> None:
        if data.error_code:
            self._on_partition_error(tp, state, data)
            return
        state.attempts = 0
        self.high_watermarks[tp] = data.high_watermark
        if not data.records:
            return
        # The one copy: the view lies in the connection's receive buffer.
        raw = bytes(data.records)  # type: ignore[arg-type]
        try:
            scan = scan_records(raw, check_crcs=self._config.check_crcs)
        except MalformedRecordsError as error:
            self._fail(tp, CorruptRecordsError(tp, error.offset, str(error)))
            return
        if scan.next_offset <= state.position:
            if scan.length == 0:
                reason = f"a record batch is larger than {len(raw)} bytes; raise fetch.max.bytes"
                self._fail(tp, CorruptRecordsError(tp, state.position, reason))
            return
        if scan.length != len(raw):
            raw = raw[: scan.length]
        end = scan.next_offset if state.end is None else min(scan.next_offset, state.end)
        self._put(tp, state, data, raw, end)
        state.position = scan.next_offset
        self._maybe_finish(state)

    def _put(
        self, tp: TopicPartition, state: _Partition, data: PartitionData, raw: bytes, end: int
    ) -> None:
        aborted = tuple(
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions or ()
        )
        self._output.append(
            RecordSet(
                tp.topic,
                tp.partition,
                state.position,
                end,
                raw,
                data.high_watermark,
                data.log_start_offset,
                aborted,
            )
        )
        self._queued_bytes += len(raw)

    def _maybe_finish(self, state: _Partition) -> None:
        if state.end is not None and state.position >= state.end and not state.stopped:
            state.stopped = True
            self._running -= 1

    # Errors

    def _on_partition_error(
        self, tp: TopicPartition, state: _Partition, data: PartitionData
    ) -> None:
        code = data.error_code
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._fail(tp, OffsetOutOfRangeError(tp, state.position, data.log_start_offset))
            return
        if code in _STALE_METADATA:
            leader = data.current_leader
            if not self._cluster.metadata.move_leader(tp, leader.leader_id, leader.leader_epoch):
                self._cluster.request_update()
            self._note_failure(tp, state, code)
            return
        error = broker_error(code, f"fetch from {tp}")
        if error.retriable:
            self._note_failure(tp, state, code)
        else:
            self._fail(tp, error)

    def _note_failure(self, tp: TopicPartition, state: _Partition, code: int) -> None:
        """Ask again after a back-off; give up after default.api.timeout.ms in a row."""
        now = self._cluster.runtime.clock.monotonic_ms()
        if state.attempts == 0:
            state.failing_since_ms = now
        state.attempts += 1
        if now - state.failing_since_ms >= self._config.default_api_timeout_ms:
            self._fail(tp, self._persistent_error(tp, code))
            self._on_output()
            return
        state.delayed = True

        def resume() -> None:
            state.delayed = False
            self.send_fetches()

        delay = self._cluster.retry_backoff.delay_ms(state.attempts)
        self._cluster.runtime.timer.call_later(delay, resume)

    def _persistent_error(self, tp: TopicPartition, code: int) -> BrokerError:
        known = self._cluster.metadata.errors.get(tp.topic)
        return broker_error(known or code, f"fetch from {tp}")

    def _fail(self, tp: TopicPartition, error: ClientError) -> None:
        state = self._partitions.get(tp)
        if state is None or state.stopped:
            return
        state.stopped = True
        self._running -= 1
        self._output.append(FetchFailure(tp, error))
