"""Fetching from many partitions at once: sessions, prefetch, recovery (KIP-227, KIP-516, KIP-320).

The next request to a node leaves as soon as its answer is in, as long as fewer than
`queued.max.bytes` wait for the user. What comes is handed on as raw record sets, in order within a
partition; a position moves when bytes arrive, and what arrives for a position that has changed
meanwhile is dropped.
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
from barnabas.client.fetch_request import FetchLimits
from barnabas.client.fetch_session import FetchPosition
from barnabas.client.fetch_state import FetchState
from barnabas.client.node_fetches import NodeFetches
from barnabas.client.record_scan import scan_records
from barnabas.protocol.errors import ErrorCode
from barnabas.runtime.memory import keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from barnabas.client.cluster import Cluster
    from barnabas.client.metadata_cache import PartitionInfo
    from barnabas.client.record_scan import BatchSpan, Flaw
    from barnabas.client.topic_partition import TopicPartition
    from barnabas.protocol.messages.fetch import PartitionData

__all__ = ["FetchFailure", "Fetcher", "ReaderOptions", "RecordSet"]

_log = logging.getLogger(__name__)

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
    # What `data` consists of.
    batches: Sequence[BatchSpan] = ()
    # End of what is visible with isolation.level=read_committed, as of this answer.
    last_stable_offset: int = -1


class FetchFailure(NamedTuple):
    """A partition that cannot be read on; it stays stopped until it is assigned anew."""

    topic_partition: TopicPartition
    error: ClientError


class ReaderOptions(NamedTuple):
    """How a reader of partitions differs from one of ranges."""

    # Fetch from a replica that the leader names as nearer to this rack (KIP-392).
    rack: str = ""
    # Ask for ever, rather than give up on a partition after default.api.timeout.ms of errors.
    is_patient: bool = False
    # Called when a partition's leader is another one than the position was read from; it is not
    # fetched from before `validated` is called (KIP-320). None: read on, whatever the leader.
    on_leader_changed: Callable[[TopicPartition], None] | None = None
    # Called after each answer with the time it took in ms.
    on_latency: Callable[[float], None] | None = None


_RANGES = ReaderOptions()


class Fetcher:
    """Reads the assigned partitions; takes care of leaders, sessions and back-off.

    `on_output` is called when something was put into `output`, or a partition came to its end.
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
        # What was fetched and not yet taken, in order of arrival.
        self._output: deque[RecordSet | FetchFailure] = deque()
        # What paused partitions had when they were paused.
        self._held: dict[TopicPartition, deque[RecordSet | FetchFailure]] = {}
        # Bytes in `_output`; no fetch is sent at queued.max.bytes and above.
        self._queued_bytes = 0
        # Partitions that still have something to give (not stopped).
        self._running = 0
        # Whether the present answer brought something.
        self._has_news = False
        # High watermark as last heard, for lag and progress.
        self.high_watermarks: dict[TopicPartition, int] = {}
        self._last_stable_offsets: dict[TopicPartition, int] = {}
        self._closed = False
        keep_freed_memory()
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
            state = FetchState(position, end)
            if before is not None:
                state.paused = before.paused
            self._partitions[tp] = state
            self._running += not state.stopped
            self._cluster.tracked.add(tp.topic)
        self.send_fetches()

    def validated(self, tp: TopicPartition, offset: int, offset_epoch: int, epoch: int) -> None:
        """Read on at `offset`, which is known to hold for the leader of `epoch`.

        Args:
            tp: one that is not being read, or whose leader changed.
            offset: where.
            offset_epoch: leader epoch of the record before it, -1 if not known.
            epoch: of the leader that it was validated with, -1 for none.
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
        """Read these no more; what was fetched of them is dropped."""
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
        """Neither ask for the partition nor give out what is there of it, until `resume`.

        Only its first record set is kept, so that many paused partitions hold little.
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
        """Whether `take` has something to give."""
        return bool(self._output)

    @property
    def is_finished(self) -> bool:
        """Whether every partition came to its end and all was taken."""
        return not self._running and not self._output

    @property
    def trouble(self) -> ClientError | None:
        """Why a broker that is read from does not answer, None while all do."""
        nodes = set()
        for tp, state in self._partitions.items():
            info = self._cluster.metadata.partition(tp)
            if info is not None and not state.stopped:
                nodes.add(info.leader if state.preferred < 0 else state.preferred)
        return self._nodes.trouble(nodes)

    @property
    def requests_sent(self) -> int:
        """Fetches sent so far."""
        return self._nodes.sent

    @property
    def session_ids(self) -> dict[int, int]:
        """The fetch sessions that are open, by the id of their node."""
        return self._nodes.session_ids

    def end_offset(self, tp: TopicPartition) -> int | None:
        """End of what can be read at this isolation level, as last heard; None before that."""
        if self._config.isolation_level == "read_committed":
            return self._last_stable_offsets.get(tp)
        return self.high_watermarks.get(tp)

    def position_epoch(self, tp: TopicPartition) -> int:
        """Leader epoch of the record before the position, -1 if not known."""
        return self._partitions[tp].position_epoch

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

    def end_sessions(self, on_done: Callable[[], None]) -> None:
        """Fetch no more, and have the brokers forget the sessions; see `NodeFetches`."""
        self._closed = True
        self._nodes.end_sessions(on_done)

    def close(self) -> None:
        """Stop; answers still under way are dropped."""
        self._closed = True
        self._nodes.close()
        self._cluster.remove_listener(self.send_fetches)
        self._partitions.clear()
        self._output.clear()
        self._held.clear()

    # Requests

    def send_fetches(self) -> None:
        """Send to each node that has no request in flight what is wanted from it."""
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
        """Whether the position has to be looked at first, since another leader has taken over."""
        before, state.leader_epoch = state.leader_epoch, info.leader_epoch
        state.preferred = -1
        if self._options.on_leader_changed is None or before < 0 or state.position_epoch < 0:
            return False
        state.stopped = True
        self._running -= 1
        self._options.on_leader_changed(tp)
        return True

    def _nearest(self, tp: TopicPartition, state: FetchState, info: PartitionInfo) -> int:
        """The preferred replica, while it holds: the leader names another, or the same, again."""
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

    # Answers

    def on_node_free(self) -> None:
        """A node can be asked again."""
        self.send_fetches()

    def on_hopeless(self, partitions: Iterable[TopicPartition], error: ClientError) -> None:
        """No retry helps these."""
        for tp in partitions:
            self._fail(tp, error)
        self._on_output()

    def on_unanswered(self, node_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Ask the leaders in place of a preferred replica that does not answer."""
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
        """Ask for more; tell if something came."""
        if self._options.on_latency is not None:
            self._options.on_latency(elapsed_ms)
        self.send_fetches()
        if self._has_news:
            self._has_news = False
            self._on_output()

    def on_partition(self, tp: TopicPartition, asked: FetchPosition, data: PartitionData) -> None:
        """Take one partition's part of an answer, unless its position is another one by now."""
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
        # The one copy: the view lies in the connection's receive buffer.
        raw = bytes(data.records)  # type: ignore[arg-type]
        scan = scan_records(raw, check_crcs=self._config.check_crcs)
        if scan.next_offset <= state.position:
            if scan.flaw is not None:
                self._fail_at(tp, state.position, scan.flaw)
            elif scan.length == 0:
                reason = f"a record batch is larger than {len(raw)} bytes; raise fetch.max.bytes"
                self._fail(tp, CorruptRecordsError(tp, state.position, reason))
            else:
                # Only records before the position: asked again after a back-off.
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
        """Take note of the replica to read from; whether metadata names it."""
        if data.preferred_read_replica not in self._cluster.metadata.nodes:
            # Asked again after a back-off, when metadata may name it.
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
            # Of the follower that it came from; the leader knows better.
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
        """Ask again after a back-off; give up after default.api.timeout.ms in a row."""
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
        """What is at the position cannot be read."""
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
