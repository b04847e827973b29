"""The transactional ids of one partition of `__transaction_state` (TransactionStateManager).

The state of an id changes when the record of the change is committed, and never before. Until then
the change is pending. When a record with a decided result is committed, the markers are sent: after
a request, a timeout, or a load. While a change is pending or markers are being written, other
changes of the id get CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec

from barnabas.coordinator.runtime.coordinator_record import CoordinatorResult
from barnabas.coordinator.runtime.shard import Shard
from barnabas.coordinator.transaction import decisions
from barnabas.coordinator.transaction.decisions import NO_TIMEOUT_MS
from barnabas.coordinator.transaction.transaction_metadata import (
    EPOCH_BUMP_VERSION,
    Markers,
    TransactionState,
)
from barnabas.coordinator.transaction.transaction_record import (
    read_transaction,
    read_transactional_id,
    transaction_record,
    transaction_tombstone,
)
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.record_frame import read_prefix
from barnabas.record.batch import NO_PRODUCER_ID

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.coordinator.runtime.coordinator_record import CoordinatorRecord
    from barnabas.coordinator.runtime.shard import ShardContext
    from barnabas.coordinator.transaction.config import TransactionConfig
    from barnabas.coordinator.transaction.decisions import EndRequest, Initialization
    from barnabas.coordinator.transaction.transaction_metadata import (
        MarkerSender,
        Producer,
        TransactionMetadata,
    )
    from barnabas.runtime.clock import Clock
    from barnabas.storage.topic_partition import TopicPartition

R = TypeVar("R")

_log = logging.getLogger(__name__)

_RECORD_TYPE = 0
# Maximum numbers of ids that one run of a timer examines, and changes. The next turn continues.
_EXAMINED_AT_ONCE_MAX = 2_000
_CHANGED_AT_ONCE_MAX = 100


class _Pending:
    """A change whose record is not committed."""

    __slots__ = ("metadata", "offset")

    def __init__(self, metadata: TransactionMetadata | None) -> None:
        # The state after the change; None if the id is removed.
        self.metadata = metadata
        # Offset of the record; -1 until it is appended.
        self.offset = -1


class TransactionShard(Shard):
    """The transactional ids of one state partition."""

    __slots__ = (
        "_clock",
        "_complete",
        "_config",
        "_context",
        "_is_active",
        "_marked",
        "_markers",
        "_open_since_ms",
        "_pending",
        "_replayed",
        "_transaction_version",
        "state_counts",
        "transactions",
    )

    def __init__(
        self,
        context: ShardContext,
        config: TransactionConfig,
        clock: Clock,
        transaction_version: Callable[[], int],
        markers: MarkerSender,
        complete: Callable[[Markers, ErrorCode], None],
    ) -> None:
        """Create the empty shard.

        Args:
            context: the partition, the leader epoch and the timers.
            config: timeouts and intervals.
            clock: the wall clock of timestamps, and the monotonic clock of timeouts.
            transaction_version: returns the level of the feature transaction.version.
            markers: sends markers.
            complete: called with markers and NONE when they are written, or with an error.
        """
        self._context = context
        self._config = config
        self._clock = clock
        self._transaction_version = transaction_version
        self._markers = markers
        self._complete = complete
        # Committed state by transactional id. `commit` changes it.
        self.transactions: dict[str, TransactionMetadata] = {}
        # Changes whose records are not committed, by transactional id. A request or a timer adds
        # one. Its commit removes it, or its append if nothing was written. OneTransactionPerId: at
        # most one for each id.
        self._pending: dict[str, _Pending] = {}
        # Number of ids by state: an index over `transactions`, changed by `commit` alone.
        self.state_counts: Counter[TransactionState] = Counter()
        # Replayed but uncommitted records: (offset, transactional id, state or None). Ascending.
        self._replayed: deque[tuple[int, str, TransactionMetadata | None]] = deque()
        # Partitions that have their marker, by transactional id, of the transactions whose markers
        # are being sent. `_send_markers` adds an id, `commit` of the complete transaction removes
        # it.
        self._marked: dict[str, set[TopicPartition]] = {}
        # When this coordinator saw each ongoing transaction first, by transactional id; monotonic,
        # ms. `commit` changes it.
        self._open_since_ms: dict[str, float] = {}
        # Whether the log is loaded: markers are sent from then on.
        self._is_active = False

    # Requests.

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the committed state of an id; None if the id is unknown."""
        return self.transactions.get(transactional_id)

    def describe(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the committed state of an id, with the partitions that have no marker yet."""
        metadata = self.transactions.get(transactional_id)
        marked = self._marked.get(transactional_id)
        if metadata is None or not marked:
            return metadata
        return msgspec.structs.replace(metadata, partitions=metadata.partitions - marked)

    def _is_changing(self, transactional_id: str) -> bool:
        """Return whether a change is pending, or markers are being written."""
        metadata = self.transactions.get(transactional_id)
        return transactional_id in self._pending or (
            metadata is not None and metadata.state.is_prepared
        )

    def initialize(
        self, request: Initialization, new_producer_id: int | None
    ) -> CoordinatorResult[TransactionMetadata | ErrorCode]:
        """Handle InitProducerId with a transactional id.

        An open transaction is aborted first, and the producer retries. With `keeps_prepared`, the
        producer takes it over instead.

        Raises:
            NeedsProducerIdError: an unused producer id is needed.
        """
        transactional_id = request.transactional_id
        if self._is_changing(transactional_id):
            return CoordinatorResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        metadata = self.transactions.get(transactional_id)
        now_ms = self._clock.wall_ms()
        if metadata is not None and metadata.state is TransactionState.ONGOING:
            return self._initialize_over(metadata, request, new_producer_id)
        after = decisions.initialize(metadata, request, new_producer_id, now_ms)
        return (
            CoordinatorResult(after) if isinstance(after, ErrorCode) else self._change(after, after)
        )

    def _initialize_over(
        self, metadata: TransactionMetadata, request: Initialization, new_producer_id: int | None
    ) -> CoordinatorResult[TransactionMetadata | ErrorCode]:
        """Handle InitProducerId while a transaction is open."""
        now_ms = self._clock.wall_ms()
        if request.keeps_prepared:
            after = decisions.keep_prepared(metadata, request, new_producer_id, now_ms)
            if isinstance(after, ErrorCode):
                return CoordinatorResult(after)
            return self._change(after, after)
        if decisions.is_fenced_by(metadata, request):
            fenced = metadata.fenced(self._abort_version(), now_ms)
            return self._change(fenced, ErrorCode.CONCURRENT_TRANSACTIONS)
        return CoordinatorResult(ErrorCode.PRODUCER_FENCED)

    def _abort_version(self) -> int:
        """Return the version of transactions that the coordinator itself aborts, as in Kafka.

        It depends on the feature's level alone: all brokers of level 2 accept such markers.
        """
        level = self._transaction_version()
        return EPOCH_BUMP_VERSION if level >= EPOCH_BUMP_VERSION else 0

    def add_partitions(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        client_version: int,
    ) -> CoordinatorResult[ErrorCode]:
        """Handle AddPartitionsToTxn and AddOffsetsToTxn."""
        metadata = self.transactions.get(transactional_id)
        if metadata is not None and self._is_changing(transactional_id):
            # Before the checks of the producer: the change may raise the epoch.
            return CoordinatorResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        error = decisions.check_producer(metadata, producer)
        if metadata is None or error is not ErrorCode.NONE:
            return CoordinatorResult(error)
        now_ms = self._clock.wall_ms()
        after = decisions.add_partitions(metadata, partitions, client_version, now_ms)
        if isinstance(after, ErrorCode):
            return CoordinatorResult(after)
        return self._change(after, ErrorCode.NONE)

    def end(
        self, request: EndRequest, new_producer_id: int | None
    ) -> CoordinatorResult[TransactionMetadata | ErrorCode]:
        """Handle EndTxn. The response is the state after it, or an error.

        Raises:
            NeedsProducerIdError: an unused producer id is needed.
        """
        metadata = self.transactions.get(request.transactional_id)
        is_changing = metadata is not None and self._is_changing(request.transactional_id)
        if is_changing and request.client_version >= EPOCH_BUMP_VERSION:
            # Before the checks of the producer: the change may raise the epoch.
            return CoordinatorResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        error = decisions.check_ending(metadata, request)
        if metadata is None or error is not ErrorCode.NONE:
            return CoordinatorResult(error)
        if is_changing:
            return CoordinatorResult(ErrorCode.CONCURRENT_TRANSACTIONS)
        after = decisions.end(metadata, request, new_producer_id, self._clock.wall_ms())
        if after is ErrorCode.NONE:
            # A retry gets the response of the first request. A coordinator with a successor must
            # not take the end of a later transaction for such a retry: in the versions of EndTxn
            # before 5, both have the same epoch.
            return CoordinatorResult(metadata, needs_leadership=True)
        return (
            CoordinatorResult(after) if isinstance(after, ErrorCode) else self._change(after, after)
        )

    def complete(self, markers: Markers) -> CoordinatorResult[None]:
        """Write the record that states that all markers of a transaction are written."""
        metadata = self.transactions.get(markers.transactional_id)
        if (
            metadata is None
            or not metadata.state.is_prepared
            or markers.coordinator_epoch != self._context.leader_epoch
            or markers.producer_id != metadata.producer_id
            or markers.producer_epoch != metadata.producer_epoch
            or markers.transactional_id in self._pending
        ):
            return CoordinatorResult(None)
        return self._change(metadata.completed(self._clock.wall_ms()), None)

    def _change(self, after: TransactionMetadata, response: R) -> CoordinatorResult[R]:
        record = transaction_record(after, self._transaction_version())
        return self._changes({after.transactional_id: after}, [record], response)

    def _changes(
        self,
        after: dict[str, TransactionMetadata | None],
        records: list[CoordinatorRecord],
        response: R,
    ) -> CoordinatorResult[R]:
        """Make changes pending until their records are committed."""
        for transactional_id, metadata in after.items():
            assert transactional_id not in self._pending, (
                f"OneTransactionPerId: transactional_id={transactional_id} "
                f"partition={self._context.topic_partition}"
            )
            self._pending[transactional_id] = _Pending(metadata)
        return CoordinatorResult(
            response, records, on_appended=partial(self._on_appended, list(after))
        )

    def _on_appended(self, transactional_ids: list[str], error: ErrorCode) -> None:
        """Drop changes whose records were not appended. Others are committed later."""
        if error is ErrorCode.NONE:
            return
        for transactional_id in transactional_ids:
            pending = self._pending.get(transactional_id)
            if pending is not None and pending.offset < 0:
                del self._pending[transactional_id]

    # Timers.

    def _start_timers(self) -> None:
        self._schedule(
            "timeouts",
            self._config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self._is_too_long_open,
            self._abort_timed_out,
        )
        self._schedule(
            "expiry",
            self._config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self._is_expired,
            self._remove_expired,
        )

    def _schedule(
        self,
        name: str,
        interval_ms: int,
        is_due: Callable[[TransactionMetadata, int], bool],
        change: Callable[[list[TransactionMetadata], int], CoordinatorResult[None]],
    ) -> None:
        """Examine all ids in each interval, and change those that are due.

        One turn examines and changes a limited number of ids. The next turns continue.

        Args:
            name: the name of the timer.
            interval_ms: delay between the end of a round and the next one.
            is_due: returns whether an id needs the change at a time (wall clock, ms).
            change: changes ids that are due.
        """
        # The ids that this round has not examined. It is empty between rounds.
        left: deque[str] = deque()

        def run() -> CoordinatorResult[None]:
            if not left:
                left.extend(self.transactions)
            now_ms = self._clock.wall_ms()
            due: list[TransactionMetadata] = []
            for _ in range(min(_EXAMINED_AT_ONCE_MAX, len(left))):
                transactional_id = left.popleft()
                metadata = self.transactions.get(transactional_id)
                if (
                    metadata is not None
                    and transactional_id not in self._pending
                    and is_due(metadata, now_ms)
                ):
                    due.append(metadata)
                    if len(due) == _CHANGED_AT_ONCE_MAX:
                        break
            self._context.timers.schedule(name, 0 if left else interval_ms, run)
            return change(due, now_ms)

        self._context.timers.schedule(name, interval_ms, run)

    def _abort_timed_out(
        self, due: list[TransactionMetadata], now_ms: int
    ) -> CoordinatorResult[None]:
        """Abort transactions that exceed their timeout. Their producers are fenced."""
        version = self._transaction_version()
        abort_version = self._abort_version()
        after: dict[str, TransactionMetadata | None] = {}
        records = []
        for metadata in due:
            aborted = metadata.fenced(abort_version, now_ms)
            after[metadata.transactional_id] = aborted
            records.append(transaction_record(aborted, version))
            _log.info(
                "Transaction timed out and is aborted: transactional_id=%s producer_id=%d "
                "timeout_ms=%d",
                metadata.transactional_id,
                metadata.producer_id,
                metadata.timeout_ms,
            )
        return self._changes(after, records, None)

    def _is_too_long_open(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        monotonic_ms = self._clock.monotonic_ms()
        since_ms = self._open_since_ms.get(metadata.transactional_id, monotonic_ms)
        return _is_timed_out(metadata, now_ms, monotonic_ms - since_ms)

    def _is_expired(self, metadata: TransactionMetadata, now_ms: int) -> bool:
        """Return whether an id was not used for `transactional.id.expiration.ms`."""
        oldest_ms = now_ms - self._config.transactional_id_expiration_ms
        return not metadata.state.has_transaction and metadata.update_ms <= oldest_ms

    def _remove_expired(
        self, expired: list[TransactionMetadata], _now_ms: int
    ) -> CoordinatorResult[None]:
        ids = [each.transactional_id for each in expired]
        return self._changes(
            dict.fromkeys(ids), [transaction_tombstone(each) for each in ids], None
        )

    # Replay and lifecycle.

    def replay(
        self, offset: int, key: bytes, value: bytes | None, _producer_id: int = NO_PRODUCER_ID
    ) -> None:
        """Apply one record. Raises ProtocolError."""
        if read_prefix(key) != _RECORD_TYPE:
            return
        transactional_id = read_transactional_id(key)
        pending = self._pending.get(transactional_id)
        if pending is not None:
            # The record does not have the last epoch, which retries need.
            metadata = pending.metadata
            pending.offset = offset
        else:
            metadata = None if value is None else read_transaction(transactional_id, value)
        self._replayed.append((offset, transactional_id, metadata))

    def replay_end_marker(self, offset: int, producer_id: int, is_commit: bool) -> None:
        """Ignore markers: this topic has no transactional records."""

    def commit(self, end_offset: int) -> None:
        """Apply all changes whose records are below `end_offset`. Send markers for them."""
        replayed = self._replayed
        while replayed and replayed[0][0] < end_offset:
            offset, transactional_id, metadata = replayed.popleft()
            pending = self._pending.get(transactional_id)
            if pending is not None and pending.offset == offset:
                del self._pending[transactional_id]
            before = self.transactions.get(transactional_id)
            if before is not None:
                self.state_counts[before.state] -= 1
            if metadata is None or not metadata.state.is_prepared:
                self._marked.pop(transactional_id, None)
            if metadata is not None and metadata.state is TransactionState.ONGOING:
                self._open_since_ms.setdefault(transactional_id, self._clock.monotonic_ms())
            else:
                self._open_since_ms.pop(transactional_id, None)
            if metadata is None:
                self.transactions.pop(transactional_id, None)
                continue
            self.transactions[transactional_id] = metadata
            self.state_counts[metadata.state] += 1
            if self._is_active and metadata.state.is_prepared:
                self._send_markers(metadata)

    def on_loaded(self) -> None:
        """Send the markers of all transactions whose result is decided. Start the timers."""
        self._is_active = True
        for metadata in list(self.transactions.values()):
            if metadata.state.is_prepared:
                self._send_markers(metadata)
        self._start_timers()

    def on_unloaded(self) -> None:
        """Drop all state. Another broker sends the markers."""
        self._is_active = False
        self.transactions.clear()
        self.state_counts.clear()
        self._pending.clear()
        self._marked.clear()
        self._open_since_ms.clear()
        self._replayed.clear()
        self._markers.forget(self._context.topic_partition.partition)

    def _send_markers(self, metadata: TransactionMetadata) -> None:
        markers = Markers(
            metadata.transactional_id,
            self._context.topic_partition.partition,
            self._context.leader_epoch,
            metadata.producer_id,
            metadata.producer_epoch,
            metadata.state is TransactionState.PREPARE_COMMIT,
            metadata.client_version,
            tuple(sorted(metadata.partitions)),
        )
        marked = self._marked[metadata.transactional_id] = set()
        self._markers.send(markers, marked.add, partial(self._complete, markers))


def _is_timed_out(metadata: TransactionMetadata, now_ms: int, open_ms: float) -> bool:
    """Return whether a transaction exceeds its timeout, by the wall clock or by its known age.

    The wall clock alone, as in Kafka, would keep a transaction open for hours after a correction of
    the clock by hours. Its records hold back the last stable offset.

    Args:
        now_ms: the wall clock.
        open_ms: for how long this coordinator has known the transaction.
    """
    return (
        metadata.state is TransactionState.ONGOING
        and metadata.timeout_ms != NO_TIMEOUT_MS
        and (metadata.start_ms + metadata.timeout_ms < now_ms or metadata.timeout_ms < open_ms)
    )
