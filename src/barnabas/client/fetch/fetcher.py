"""Fetch from many partitions at once, with fetch sessions, prefetch and recovery.

The next request to a node is sent as soon as its response arrives, while fewer than
`queued.max.bytes` are queued for the user. Output is raw record sets, in order within a partition.
A position moves when bytes arrive. A response for a position that has changed meanwhile is dropped.
Sources: KIP-227, KIP-516, KIP-320.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.connections.metadata_cache import ZERO_ID
from barnabas.client.errors import (
    BrokerError,
    ClientError,
    CorruptRecordsError,
    OffsetOutOfRangeError,
    broker_error,
)
from barnabas.client.fetch.fetch_buffer import FetchBuffer, FetchedSet
from barnabas.client.fetch.node_fetches import FetchLimits, FetchPosition, NodeFetches
from barnabas.client.fetch.record_set import FetchFailure, RecordSet, scan_records
from barnabas.network.frame_buffers import may_keep
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.system_calls import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.fetch.fetch_buffer import FetchState
    from barnabas.client.fetch.record_set import InvalidBatch, Scan
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.messages.fetch import PartitionData

__all__ = ["Fetcher", "ReaderOptions"]

_log = logging.getLogger(__name__)

# Errors after which the broker or the client's metadata is out of date: refresh, then retry.
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


class ReaderOptions(NamedTuple):
    """Options that differ between consumers and readers of offset ranges."""

    # Rack of the client: the leader may name a closer replica to fetch from (KIP-392).
    rack: str = ""
    # Whether to retry without limit, instead of failing a partition after default.api.timeout.ms.
    is_patient: bool = False
    # Called when a partition's leader or the id of its topic has changed since its last fetch.
    # Fetching from the partition stops until `start` is called (KIP-320). None: continue with
    # another leader without validation, and fail the partition if the topic has another id.
    on_changed: Callable[[TopicPartition], None] | None = None
    # Called with the latency (ms) of each response.
    on_latency: Callable[[float], None] | None = None
    # Whether the data of record sets may be views of receive buffers, instead of bytes.
    keeps_views: bool = False


_RANGES = ReaderOptions()


class Fetcher:
    """Reads the started partitions; handles leader changes, fetch sessions and retries.

    Args:
        cluster: The cluster to fetch from.
        partitions: The partitions by name, in the order in which requests name them. The caller
            owns the mapping and may change it; before it removes a partition it calls `stop`.
        on_output: Called when output was added or a partition reached its end.
        options: Options of the reader.
    """

    def __init__(
        self,
        cluster: Cluster,
        partitions: Mapping[TopicPartition, FetchState],
        on_output: Callable[[], None] = lambda: None,
        options: ReaderOptions = _RANGES,
    ) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._partitions = partitions
        self._on_output = on_output
        self._options = options
        self._clock = cluster.runtime.clock
        self._nodes = NodeFetches(cluster, FetchLimits.of(self._config, options.rack), self)
        # The fetched output; no fetch is sent while it is full.
        self.buffer = FetchBuffer(self._config.queued_max_bytes)
        # Whether the current response added output or finished a partition. Cleared when
        # `on_output` is called.
        self._has_new_output = False
        self._closed = False
        keep_freed_memory()
        cluster.on_update(self.send_fetches)

    # Partitions and output

    def start(
        self, state: FetchState, offset: int, epoch: int = -1, leader_epoch: int = -1
    ) -> None:
        """Fetch a partition from `offset`, and discard its output; `send_fetches` sends requests.

        See `FetchState.start` for the arguments.
        """
        assert self._partitions.get(state.tp) is state, state.tp
        self.buffer.drop(state)
        state.start(offset, epoch, leader_epoch)
        self._cluster.tracked.add(state.tp.topic)

    def stop(self, state: FetchState) -> None:
        """Stop fetching a partition and discard its output."""
        was_full = self.buffer.is_full
        self.buffer.drop(state)
        state.is_stopped = True
        state.high_watermark = state.last_stable_offset = None
        if was_full:
            self.send_fetches()

    @property
    def is_finished(self) -> bool:
        """Whether every partition is stopped and all output was taken."""
        return not self.buffer and all(state.is_stopped for state in self._partitions.values())

    @property
    def trouble(self) -> ClientError | None:
        """Error of a broker that is read from and does not respond; None while all respond."""
        nodes = set()
        for tp, state in self._partitions.items():
            info = self._cluster.metadata.partition(tp)
            if info is not None and not state.is_stopped:
                at_leader = state.preferred_replica < 0
                nodes.add(info.leader if at_leader else state.preferred_replica)
        return self._nodes.trouble(nodes)

    @property
    def requests_sent(self) -> int:
        """Number of fetch requests sent so far."""
        return self._nodes.sent

    @property
    def session_ids(self) -> dict[int, int]:
        """Ids of the open fetch sessions, by node id."""
        return self._nodes.session_ids

    def take(self) -> RecordSet | FetchFailure | None:
        """Return the next record set or failure; None if there is none."""
        if not self.buffer:
            return None
        was_full = self.buffer.is_full
        item = self.buffer.pop()
        if was_full and not self.buffer.is_full:
            self.send_fetches()
        return item.record_set if isinstance(item, FetchedSet) else item

    def end_sessions(self, on_done: Callable[[], None]) -> None:
        """Stop fetching and close the fetch sessions on the brokers; see `NodeFetches`."""
        self._closed = True
        self._nodes.end_sessions(on_done)

    def close(self) -> None:
        """Stop; responses that are still in flight are dropped."""
        self._closed = True
        self._nodes.close()
        self._cluster.remove_listener(self.send_fetches)
        for state in self._partitions.values():
            self.stop(state)

    # Requests

    def send_fetches(self) -> None:
        """Send a fetch request to each node that has none in flight and has partitions to read."""
        if self._closed or self.buffer.is_full:
            return
        if all(state.is_stopped for state in self._partitions.values()):
            return
        self._cluster.maybe_update_by_age()
        for node_id, wanted in self._wanted_by_node().items():
            if self._nodes.is_free(node_id):
                self._nodes.send(node_id, wanted)

    def _wanted_by_node(self) -> dict[int, dict[TopicPartition, FetchPosition]]:
        metadata = self._cluster.metadata
        max_bytes = self._config.max_partition_fetch_bytes
        wanted: dict[int, dict[TopicPartition, FetchPosition]] = {}
        leaderless = False
        for tp, state in self._partitions.items():
            if not state.is_fetchable:
                continue
            info = metadata.partition(tp)
            if info is None or info.leader not in metadata.nodes:
                leaderless = True
                self._note_failure(state, ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            topic_id = metadata.topic_id(tp.topic)
            if topic_id != state.topic_id and self._is_other_topic(state, topic_id):
                continue
            if info.leader_epoch != state.leader_epoch and self._must_validate(state, info):
                continue
            node_id = info.leader if state.preferred_replica < 0 else self._nearest(state, info)
            wanted.setdefault(node_id, {})[tp] = FetchPosition(
                state.fetch_offset, info.leader_epoch, max_bytes, topic_id
            )
        if leaderless:
            self._cluster.request_update()
        return wanted

    def _is_other_topic(self, state: FetchState, topic_id: bytes) -> bool:
        """Return whether the topic was deleted and created again since the offset was set."""
        if not state.is_of_other_topic(topic_id):
            # One of them may be unknown, which is all zero.
            state.topic_id = max(state.topic_id, topic_id)
            return False
        if self._options.on_changed is None and state.high_watermark is None:
            # No response has confirmed the id before: it was that of metadata from before the
            # offsets were chosen. The client of a Spark worker may be older than the topic.
            state.topic_id = topic_id
            return False
        if self._options.on_changed is None:
            detail = "the topic was deleted and created again while it was read"
            subject = f"fetch from {state.tp}"
            self._fail(state, broker_error(ErrorCode.INCONSISTENT_TOPIC_ID, subject, detail))
            self._cluster.runtime.timer.call_soon(self._on_output)
        else:
            state.is_stopped = True
            self._options.on_changed(state.tp)
        return True

    def _must_validate(self, state: FetchState, info: PartitionInfo) -> bool:
        """Return whether the position must be validated first, because the leader has changed."""
        before, state.leader_epoch = state.leader_epoch, info.leader_epoch
        state.preferred_replica = -1
        if self._options.on_changed is None or before < 0 or state.fetch_epoch < 0:
            return False
        state.is_stopped = True
        self._options.on_changed(state.tp)
        return True

    def _nearest(self, state: FetchState, info: PartitionInfo) -> int:
        """Return the preferred replica, or the leader if the preference is expired or unusable."""
        if self._clock.monotonic_ms() >= state.preferred_until_ms:
            state.preferred_replica = -1
            return info.leader
        is_known = state.preferred_replica in self._cluster.metadata.nodes
        if not is_known or state.preferred_replica in info.offline_replicas:
            replica = state.preferred_replica
            _log.info("Preferred replica is offline: partition=%s broker=%d", state.tp, replica)
            state.preferred_replica = -1
            self._cluster.request_update()
            return info.leader
        return state.preferred_replica

    # Responses

    def on_node_free(self) -> None:
        """Send further fetches after a node became free."""
        self.send_fetches()

    def on_fatal_error(self, partitions: Iterable[TopicPartition], error: ClientError) -> None:
        """Fail partitions whose error no retry can resolve."""
        for tp in partitions:
            if tp in self._partitions:
                self._fail(self._partitions[tp], error)
        self._on_output()

    def on_no_response(self, node_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from the leaders instead of a preferred replica that does not respond."""
        has_left = False
        for tp in partitions:
            state = self._partitions.get(tp)
            if state is not None and state.preferred_replica == node_id:
                state.preferred_replica = -1
                has_left = True
        if has_left:
            _log.info("Preferred replica does not respond: broker=%d", node_id)
            self.send_fetches()

    def on_response_end(self, elapsed_ms: float) -> None:
        """Send further fetches after a response, and report new output."""
        if self._options.on_latency is not None:
            self._options.on_latency(elapsed_ms)
        self.send_fetches()
        if self._has_new_output:
            self._has_new_output = False
            self._on_output()

    def on_partition(
        self, tp: TopicPartition, requested: FetchPosition, data: PartitionData
    ) -> None:
        """Handle one partition of a response, unless its position has changed meanwhile."""
        state = self._partitions.get(tp)
        if state is None or state.fetch_offset != requested.offset or not state.is_fetchable:
            return
        if state.topic_id != requested.topic_id != ZERO_ID:
            return
        if data.error_code:
            self._on_partition_error(state, data)
            return
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        if data.preferred_read_replica >= 0 and not self._prefer(state, data):
            return
        if data.records:
            self._on_records(state, data)
        else:
            state.attempts = 0

    def _on_records(self, state: FetchState, data: PartitionData) -> None:
        raw = self._kept(data.records)
        scan = scan_records(raw, check_crcs=self._config.check_crcs)
        if scan.next_offset <= state.fetch_offset:
            self._on_no_progress(state, scan, len(raw))
            return
        if scan.length != len(raw):
            raw = raw[: scan.length]
        end = scan.next_offset if state.end is None else min(scan.next_offset, state.end)
        aborted = tuple(
            (transaction.producer_id, transaction.first_offset)
            for transaction in data.aborted_transactions or ()
        )
        tp = state.tp
        record_set = RecordSet(
            tp.topic,
            tp.partition,
            state.fetch_offset,
            end,
            raw,
            data.high_watermark,
            data.log_start_offset,
            aborted,
            scan.batches,
            data.last_stable_offset,
        )
        self.buffer.add(state, state.on_fetched(record_set))
        self._has_new_output = True
        if scan.invalid is not None:
            self._fail_at_invalid_batch(state, scan.invalid)

    def _kept(self, records: object) -> bytes | memoryview:
        """Return records that stay valid after the response was handled.

        This is the only copy: the records are a view of the connection's receive buffer. Readers of
        a consumer's sets accept a view as well as bytes.
        """
        assert isinstance(records, memoryview | bytes), type(records)
        if self._options.keeps_views and isinstance(records, memoryview) and may_keep(records):
            return records
        return bytes(records)

    def _on_no_progress(self, state: FetchState, scan: Scan, size: int) -> None:
        """Handle a response of `size` bytes without a valid batch after the fetch offset."""
        if scan.invalid is not None:
            self._fail_at_invalid_batch(state, scan.invalid)
        elif scan.length == 0:
            reason = f"a record batch is larger than {size} bytes; raise fetch.max.bytes"
            self._fail(state, CorruptRecordsError(state.tp, state.fetch_offset, reason))
        else:
            # Only records before the fetch offset: retry after a backoff.
            self._note_failure(state, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _prefer(self, state: FetchState, data: PartitionData) -> bool:
        """Store the preferred replica; return whether the metadata contains it."""
        if data.preferred_read_replica not in self._cluster.metadata.nodes:
            # Retry after a backoff, when the metadata may contain the replica.
            self._cluster.request_update()
            self._note_failure(state, ErrorCode.REPLICA_NOT_AVAILABLE)
            return False
        state.preferred_replica = data.preferred_read_replica
        until_ms = self._clock.monotonic_ms() + self._config.metadata_max_age_ms
        state.preferred_until_ms = until_ms
        return True

    # Errors

    def _on_partition_error(self, state: FetchState, data: PartitionData) -> None:
        tp, code = state.tp, data.error_code
        if state.preferred_replica >= 0:
            # The error comes from the preferred follower; ask the leader instead.
            state.preferred_replica = -1
            if code in _STALE_METADATA:
                self._cluster.request_update()
            self._note_failure(state, code)
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._fail(state, OffsetOutOfRangeError(tp, state.fetch_offset, data.log_start_offset))
            return
        if code in _STALE_METADATA:
            leader = data.current_leader
            if not self._cluster.metadata.move_leader(tp, leader.leader_id, leader.leader_epoch):
                self._cluster.request_update()
            self._note_failure(state, code)
            return
        error = broker_error(code, f"fetch from {tp}")
        if error.retriable:
            self._note_failure(state, code)
        else:
            self._fail(state, error)

    def _note_failure(self, state: FetchState, code: int) -> None:
        """Retry after a backoff; fail after default.api.timeout.ms of consecutive errors."""
        now = self._clock.monotonic_ms()
        if state.attempts == 0:
            state.failing_since_ms = now
        state.attempts += 1
        late = now - state.failing_since_ms >= self._config.default_api_timeout_ms
        if late and not self._options.is_patient:
            self._fail(state, self._persistent_error(state.tp, code))
            self._on_output()
            return
        state.is_delayed = True
        starts = state.starts

        def resume() -> None:
            if state.starts == starts:
                state.is_delayed = False
                self.send_fetches()

        delay = self._cluster.retry_backoff.delay_ms(state.attempts)
        self._cluster.runtime.timer.call_later(delay, resume)

    def _persistent_error(self, tp: TopicPartition, code: int) -> BrokerError:
        known = self._cluster.metadata.errors.get(tp.topic)
        return broker_error(known or code, f"fetch from {tp}")

    def _fail_at_invalid_batch(self, state: FetchState, invalid: InvalidBatch) -> None:
        """Fail a partition because the bytes at its fetch offset are corrupt."""
        offset = max(state.fetch_offset, invalid.offset)
        next_offset = max(offset + 1, invalid.next_offset)
        self._fail(state, CorruptRecordsError(state.tp, offset, invalid.reason, next_offset))

    def _fail(self, state: FetchState, error: ClientError) -> None:
        if state.is_stopped:
            return
        state.is_stopped = True
        self._has_new_output = True
        self.buffer.add_failure(state, FetchFailure(state.tp, error))
