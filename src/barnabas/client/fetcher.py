"""Fetch from many partitions at once, with fetch sessions, prefetch and recovery.

The next request to a node is sent as soon as its response arrives, while fewer than
`queued.max.bytes` are queued for the user. Output is raw record sets, in order within a partition.
A position moves when bytes arrive. A response for a position that has changed meanwhile is dropped.
Sources: KIP-227, KIP-516, KIP-320.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import (
    BrokerError,
    ClientError,
    CorruptRecordsError,
    OffsetOutOfRangeError,
    broker_error,
)
from barnabas.client.fetch_position import FetchPosition
from barnabas.client.fetch_request import FetchLimits
from barnabas.client.fetch_state import FetchState
from barnabas.client.node_fetches import NodeFetches
from barnabas.client.record_scan import scan_records
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.memory import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.connections.cluster import Cluster
    from barnabas.client.connections.metadata_cache import PartitionInfo
    from barnabas.client.record_scan import BatchSpan, Flaw
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.messages.fetch import PartitionData

__all__ = ["FetchFailure", "Fetcher", "ReaderOptions", "RecordSet"]

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


class RecordSet(NamedTuple):
    """Fetched bytes of one partition: whole record batches, as stored in the log.

    The first batch may begin before `first_offset`, and the last batch may end after `end_offset`.
    Records outside [first_offset, end_offset) do not belong to the set.
    """

    topic: str
    partition: int
    first_offset: int
    # End offset (exclusive); the next set begins here.
    end_offset: int
    data: bytes
    # High watermark as of this response.
    high_watermark: int
    # Start offset of the log as of this response.
    log_start_offset: int
    # (producer id, first offset) of aborted transactions; only with isolation.level=read_committed.
    aborted: tuple[tuple[int, int], ...]
    # The batches in `data`.
    batches: Sequence[BatchSpan] = ()
    # Last stable offset as of this response; -1 if unknown.
    last_stable_offset: int = -1


class FetchFailure(NamedTuple):
    """A partition that cannot be read further; it stays stopped until it is assigned again."""

    topic_partition: TopicPartition
    error: ClientError


class ReaderOptions(NamedTuple):
    """Options that differ between consumers and readers of offset ranges."""

    # Rack of the client: the leader may name a closer replica to fetch from (KIP-392).
    rack: str = ""
    # Whether to retry without limit, instead of failing a partition after default.api.timeout.ms.
    is_patient: bool = False
    # Called when a partition's leader has changed since its last fetch. Fetching from the partition
    # stops until `validated` is called (KIP-320). None: continue without validation.
    on_leader_changed: Callable[[TopicPartition], None] | None = None
    # Called with the latency (ms) of each response.
    on_latency: Callable[[float], None] | None = None


_RANGES = ReaderOptions()


class Fetcher:
    """Reads the assigned partitions; handles leader changes, fetch sessions and retries.

    Args:
        cluster: The cluster to fetch from.
        on_output: Called when output was added or a partition reached its end.
        options: Options of the reader.
    """

    def __init__(
        self,
        cluster: Cluster,
        on_output: Callable[[], None] = lambda: None,
        options: ReaderOptions = _RANGES,
    ) -> None:
        self._cluster = cluster
        self._config = cluster.config
        self._on_output = on_output
        self._options = options
        self._clock = cluster.runtime.clock
        self._nodes = NodeFetches(cluster, FetchLimits.of(self._config, options.rack), self)
        self._partitions: dict[TopicPartition, FetchState] = {}
        # Fetched record sets and failures that were not taken yet, in order of arrival.
        self._output: deque[RecordSet | FetchFailure] = deque()
        # Output that partitions had when they were paused.
        self._held: dict[TopicPartition, deque[RecordSet | FetchFailure]] = {}
        # Bytes in `_output`; at queued.max.bytes and above no fetch is sent.
        self._queued_bytes = 0
        # Number of partitions that are not stopped.
        self._running = 0
        # Whether the current response added output or finished a partition.
        self._has_news = False
        # Last known high watermark, for lag and progress.
        self.high_watermarks: dict[TopicPartition, int] = {}
        # Last known last stable offset.
        self._last_stable_offsets: dict[TopicPartition, int] = {}
        self._closed = False
        keep_freed_memory()
        cluster.on_update(self.send_fetches)

    # Assignment and output

    def assign(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> None:
        """Start reading partitions, each from an offset to an exclusive end (None: no end).

        A partition that is already being read moves to the new offset, and its output is dropped.
        """
        self._drop_output(set(ranges))
        for tp, (position, end) in ranges.items():
            before = self._partitions.get(tp)
            if before is not None and not before.stopped:
                self._running -= 1
            state = FetchState(position, end)
            if before is not None:
                state.paused = before.paused
            self._partitions[tp] = state
            self._running += not state.stopped
            self._cluster.tracked.add(tp.topic)
        self.send_fetches()

    def validated(self, tp: TopicPartition, offset: int, offset_epoch: int, epoch: int) -> None:
        """Continue reading at `offset`, which was validated with the leader of `epoch`.

        Args:
            tp: A partition that is not being read, or whose leader changed.
            offset: The next offset to fetch.
            offset_epoch: Leader epoch of the record before `offset`; -1 if unknown.
            epoch: Epoch of the leader that the offset was validated with; -1 if there is none.
        """
        state = self._partitions.get(tp)
        if state is None or state.position != offset:
            self.assign({tp: (offset, None)})
            state = self._partitions[tp]
        elif state.stopped:
            state.stopped = False
            self._running += 1
        state.position_epoch = offset_epoch
        state.leader_epoch = epoch
        self.send_fetches()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions and drop their output."""
        gone = {tp for tp in partitions if tp in self._partitions}
        if not gone:
            return
        self._drop_output(gone)
        for tp in gone:
            self._running -= not self._partitions.pop(tp).stopped
            self.high_watermarks.pop(tp, None)
            self._last_stable_offsets.pop(tp, None)
        self.send_fetches()

    def pause(self, tp: TopicPartition) -> None:
        """Neither fetch the partition nor return its output until `resume`.

        Only its first record set is kept, so that many paused partitions use little memory.
        """
        state = self._partitions.get(tp)
        if state is None or state.paused:
            return
        state.paused = True
        mine = deque(item for item in self._output if _partition_of(item) == tp)
        if not mine:
            return
        self._remove_output({tp})
        first = mine[0]
        if isinstance(first, RecordSet) and len(mine) > 1:
            self._running += state.stopped
            state.stopped = False
            state.position = first.batches[-1].next_offset
            state.position_epoch = first.batches[-1].leader_epoch
        self._held[tp] = deque([first])

    def resume(self, tp: TopicPartition) -> None:
        """Undo `pause`."""
        state = self._partitions.get(tp)
        if state is None or not state.paused:
            return
        state.paused = False
        for item in self._held.pop(tp, ()):
            self._output.append(item)
            if isinstance(item, RecordSet):
                self._queued_bytes += len(item.data)
        self.send_fetches()

    def _drop_output(self, partitions: set[TopicPartition]) -> None:
        for tp in partitions:
            self._held.pop(tp, None)
        self._remove_output(partitions)

    def _remove_output(self, partitions: set[TopicPartition]) -> None:
        if not any(_partition_of(item) in partitions for item in self._output):
            return
        kept: deque[RecordSet | FetchFailure] = deque()
        for item in self._output:
            if _partition_of(item) not in partitions:
                kept.append(item)
            elif isinstance(item, RecordSet):
                self._queued_bytes -= len(item.data)
        self._output = kept

    @property
    def has_output(self) -> bool:
        """Whether `take` would return an item."""
        return bool(self._output)

    @property
    def is_finished(self) -> bool:
        """Whether every partition is stopped and all output was taken."""
        return not self._running and not self._output

    @property
    def trouble(self) -> ClientError | None:
        """Error of a broker that is read from and does not respond; None while all respond."""
        nodes = set()
        for tp, state in self._partitions.items():
            info = self._cluster.metadata.partition(tp)
            if info is not None and not state.stopped:
                nodes.add(info.leader if state.preferred < 0 else state.preferred)
        return self._nodes.trouble(nodes)

    @property
    def requests_sent(self) -> int:
        """Number of fetch requests sent so far."""
        return self._nodes.sent

    @property
    def session_ids(self) -> dict[int, int]:
        """Ids of the open fetch sessions, by node id."""
        return self._nodes.session_ids

    def end_offset(self, tp: TopicPartition) -> int | None:
        """Return the last known end offset at the configured isolation level; None if unknown."""
        if self._config.isolation_level == "read_committed":
            return self._last_stable_offsets.get(tp)
        return self.high_watermarks.get(tp)

    def position_epoch(self, tp: TopicPartition) -> int:
        """Return the leader epoch of the record before the position; -1 if unknown."""
        return self._partitions[tp].position_epoch

    def position(self, tp: TopicPartition) -> int:
        """Return the next offset to fetch; output that was not taken yet lies before it."""
        return self._partitions[tp].position

    def unfinished(self) -> dict[TopicPartition, tuple[int, int | None]]:
        """Return position and end of the partitions that are not stopped."""
        return {
            tp: (state.position, state.end)
            for tp, state in self._partitions.items()
            if not state.stopped
        }

    def take(self) -> RecordSet | FetchFailure | None:
        """Return the next record set or failure; None if there is none."""
        if not self._output:
            return None
        item = self._output.popleft()
        if isinstance(item, RecordSet):
            was_full = self._queued_bytes >= self._config.queued_max_bytes
            self._queued_bytes -= len(item.data)
            if was_full and self._queued_bytes < self._config.queued_max_bytes:
                self.send_fetches()
        return item

    def end_sessions(self, on_done: Callable[[], None]) -> None:
        """Stop fetching and close the fetch sessions on the brokers; see `NodeFetches`."""
        self._closed = True
        self._nodes.end_sessions(on_done)

    def close(self) -> None:
        """Stop; responses that are still in flight are dropped."""
        self._closed = True
        self._nodes.close()
        self._cluster.remove_listener(self.send_fetches)
        self._partitions.clear()
        self._output.clear()
        self._held.clear()

    # Requests

    def send_fetches(self) -> None:
        """Send a fetch request to each node that has none in flight and has partitions to read."""
        if self._closed or not self._running:
            return
        if self._queued_bytes >= self._config.queued_max_bytes:
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
            if state.stopped or state.delayed or state.paused:
                continue
            info = metadata.partition(tp)
            if info is None or info.leader not in metadata.nodes:
                leaderless = True
                self._note_failure(tp, state, ErrorCode.LEADER_NOT_AVAILABLE)
                continue
            if info.leader_epoch != state.leader_epoch and self._must_validate(tp, state, info):
                continue
            node_id = info.leader if state.preferred < 0 else self._nearest(tp, state, info)
            wanted.setdefault(node_id, {})[tp] = FetchPosition(
                state.position, info.leader_epoch, max_bytes, metadata.topic_id(tp.topic)
            )
        if leaderless:
            self._cluster.request_update()
        return wanted

    def _must_validate(self, tp: TopicPartition, state: FetchState, info: PartitionInfo) -> bool:
        """Return whether the position must be validated first, because the leader has changed."""
        before, state.leader_epoch = state.leader_epoch, info.leader_epoch
        state.preferred = -1
        if self._options.on_leader_changed is None or before < 0 or state.position_epoch < 0:
            return False
        state.stopped = True
        self._running -= 1
        self._options.on_leader_changed(tp)
        return True

    def _nearest(self, tp: TopicPartition, state: FetchState, info: PartitionInfo) -> int:
        """Return the preferred replica, or the leader if the preference is expired or unusable."""
        if self._clock.monotonic_ms() >= state.preferred_until_ms:
            state.preferred = -1
            return info.leader
        is_known = state.preferred in self._cluster.metadata.nodes
        if not is_known or state.preferred in info.offline_replicas:
            _log.info("preferred replica is offline: partition=%s broker=%d", tp, state.preferred)
            state.preferred = -1
            self._cluster.request_update()
            return info.leader
        return state.preferred

    # Responses

    def on_node_free(self) -> None:
        """Send further fetches after a node became free."""
        self.send_fetches()

    def on_hopeless(self, partitions: Iterable[TopicPartition], error: ClientError) -> None:
        """Fail partitions whose error no retry can resolve."""
        for tp in partitions:
            self._fail(tp, error)
        self._on_output()

    def on_unanswered(self, node_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Fetch from the leaders instead of a preferred replica that does not respond."""
        has_left = False
        for tp in partitions:
            state = self._partitions.get(tp)
            if state is not None and state.preferred == node_id:
                state.preferred = -1
                has_left = True
        if has_left:
            _log.info("preferred replica does not answer: broker=%d", node_id)
            self.send_fetches()

    def on_answered(self, elapsed_ms: float) -> None:
        """Send further fetches after a response, and report new output."""
        if self._options.on_latency is not None:
            self._options.on_latency(elapsed_ms)
        self.send_fetches()
        if self._has_news:
            self._has_news = False
            self._on_output()

    def on_partition(self, tp: TopicPartition, asked: FetchPosition, data: PartitionData) -> None:
        """Handle one partition of a response, unless its position has changed meanwhile."""
        state = self._partitions.get(tp)
        if state is None or state.position != asked.offset:
            return
        if not (state.stopped or state.delayed or state.paused):
            self._on_partition(tp, state, data)

    def _on_partition(self, tp: TopicPartition, state: FetchState, data: PartitionData) -> None:
        if data.error_code:
            self._on_partition_error(tp, state, data)
            return
        self.high_watermarks[tp] = data.high_watermark
        self._last_stable_offsets[tp] = data.last_stable_offset
        if data.preferred_read_replica >= 0 and not self._prefer(tp, state, data):
            return
        if not data.records:
            state.attempts = 0
            return
        # The only copy: `data.records` is a view of the connection's receive buffer.
        raw = bytes(data.records)  # type: ignore[arg-type]
        scan = scan_records(raw, check_crcs=self._config.check_crcs)
        if scan.next_offset <= state.position:
            if scan.flaw is not None:
                self._fail_at(tp, state.position, scan.flaw)
            elif scan.length == 0:
                reason = f"a record batch is larger than {len(raw)} bytes; raise fetch.max.bytes"
                self._fail(tp, CorruptRecordsError(tp, state.position, reason))
            else:
                # Only records before the position: retry after a backoff.
                self._note_failure(tp, state, ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        state.attempts = 0
        if scan.length != len(raw):
            raw = raw[: scan.length]
        end = scan.next_offset if state.end is None else min(scan.next_offset, state.end)
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
                scan.batches,
                data.last_stable_offset,
            )
        )
        self._queued_bytes += len(raw)
        state.position = scan.next_offset
        state.position_epoch = scan.batches[-1].leader_epoch
        self._has_news = True
        self._maybe_finish(state)
        if scan.flaw is not None:
            self._fail_at(tp, state.position, scan.flaw)

    def _prefer(self, tp: TopicPartition, state: FetchState, data: PartitionData) -> bool:
        """Store the preferred replica; return whether the metadata contains it."""
        if data.preferred_read_replica not in self._cluster.metadata.nodes:
            # Retry after a backoff, when the metadata may contain the replica.
            self._cluster.request_update()
            self._note_failure(tp, state, ErrorCode.REPLICA_NOT_AVAILABLE)
            return False
        state.preferred = data.preferred_read_replica
        until_ms = self._clock.monotonic_ms() + self._config.metadata_max_age_ms
        state.preferred_until_ms = until_ms
        return True

    def _maybe_finish(self, state: FetchState) -> None:
        if state.end is not None and state.position >= state.end and not state.stopped:
            state.stopped = True
            self._running -= 1
            self._has_news = True

    # Errors

    def _on_partition_error(
        self, tp: TopicPartition, state: FetchState, data: PartitionData
    ) -> None:
        code = data.error_code
        if state.preferred >= 0:
            # The error comes from the preferred follower; ask the leader instead.
            state.preferred = -1
            if code in _STALE_METADATA:
                self._cluster.request_update()
            self._note_failure(tp, state, code)
            return
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

    def _note_failure(self, tp: TopicPartition, state: FetchState, code: int) -> None:
        """Retry after a backoff; fail after default.api.timeout.ms of consecutive errors."""
        now = self._clock.monotonic_ms()
        if state.attempts == 0:
            state.failing_since_ms = now
        state.attempts += 1
        late = now - state.failing_since_ms >= self._config.default_api_timeout_ms
        if late and not self._options.is_patient:
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

    def _fail_at(self, tp: TopicPartition, position: int, flaw: Flaw) -> None:
        """Fail a partition because the bytes at the position are corrupt."""
        offset = max(position, flaw.offset)
        behind = max(offset + 1, flaw.next_offset)
        self._fail(tp, CorruptRecordsError(tp, offset, flaw.reason, behind))

    def _fail(self, tp: TopicPartition, error: ClientError) -> None:
        state = self._partitions.get(tp)
        if state is None or state.stopped:
            return
        state.stopped = True
        self._running -= 1
        self._has_news = True
        self._output.append(FetchFailure(tp, error))


def _partition_of(item: RecordSet | FetchFailure) -> tuple[str, int]:
    if isinstance(item, RecordSet):
        return (item.topic, item.partition)
    return item.topic_partition
