"""The coordinator's state of one transactional id (Kafka's TransactionMetadata; KIP-98, 890, 939).

Kafka has two more states. DEAD is never written: a tombstone removes an expired id.
PREPARE_EPOCH_FENCE is never written either: fencing aborts the transaction in the same record.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.errors import ErrorCode
    from barnabas.storage.topic_partition import TopicPartition


class TransactionState(IntEnum):
    """The state of a transactional id, with Kafka's numbers."""

    # No transaction since the last InitProducerId.
    EMPTY = 0
    # Partitions were added.
    ONGOING = 1
    # The result is decided, and markers are being written.
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    # All markers are written.
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name in responses, such as PrepareCommit."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """Whether the result is decided, and markers are being written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def has_transaction(self) -> bool:
        """Whether a transaction is ongoing or ending."""
        return self is TransactionState.ONGOING or self.is_prepared


# All names that ListTransactions accepts as filters.
STATE_LABELS = frozenset(
    {*(state.label for state in TransactionState), "Dead", "PrepareEpochFence"}
)


class TransactionEvent(Enum):
    """An event that changes the state of a transactional id."""

    # InitProducerId: a producer begins with a new epoch.
    INITIALIZED = "initialized"
    # AddPartitionsToTxn, AddOffsetsToTxn, or a Produce request of a client of version 2.
    PARTITIONS_ADDED = "partitions added"
    # InitProducerId with keepPreparedTxn: the producer may end its predecessor's transaction.
    KEPT = "kept"
    # EndTxn of the producer.
    COMMITTED = "committed"
    ABORTED = "aborted"
    # Another producer with the same id, or a timeout: the transaction is aborted.
    FENCED = "fenced"
    # Every partition has its marker.
    MARKERS_WRITTEN = "markers written"


# Events of an id without an ongoing transaction.
_WITHOUT_TRANSACTION = {
    TransactionEvent.INITIALIZED: TransactionState.EMPTY,
    TransactionEvent.PARTITIONS_ADDED: TransactionState.ONGOING,
    # A client of version 2 may abort a transaction that has not begun, which raises its epoch.
    TransactionEvent.ABORTED: TransactionState.PREPARE_ABORT,
}

# Next state by event. All other events are refused.
TRANSACTION_STATES: dict[TransactionState, dict[TransactionEvent, TransactionState]] = {
    TransactionState.EMPTY: _WITHOUT_TRANSACTION,
    TransactionState.ONGOING: {
        TransactionEvent.PARTITIONS_ADDED: TransactionState.ONGOING,
        TransactionEvent.KEPT: TransactionState.ONGOING,
        TransactionEvent.COMMITTED: TransactionState.PREPARE_COMMIT,
        TransactionEvent.ABORTED: TransactionState.PREPARE_ABORT,
        TransactionEvent.FENCED: TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {
        TransactionEvent.MARKERS_WRITTEN: TransactionState.COMPLETE_COMMIT
    },
    TransactionState.PREPARE_ABORT: {
        TransactionEvent.MARKERS_WRITTEN: TransactionState.COMPLETE_ABORT
    },
    TransactionState.COMPLETE_COMMIT: _WITHOUT_TRANSACTION,
    TransactionState.COMPLETE_ABORT: _WITHOUT_TRANSACTION,
}


NO_PRODUCER_ID = -1
NO_EPOCH = -1


class Producer(msgspec.Struct, frozen=True):
    """A producer id and epoch; -1 and -1 for none."""

    producer_id: int = NO_PRODUCER_ID
    epoch: int = NO_EPOCH

    @property
    def is_given(self) -> bool:
        """Whether there is a producer id."""
        return self.producer_id != NO_PRODUCER_ID


NO_TIME = -1
# Only the coordinator uses the last epoch, to fence the producer.
EPOCH_MAX = 0x7FFF
# Transactions of this version raise the epoch at each end (KIP-890).
EPOCH_BUMP_VERSION = 2


def is_epoch_exhausted(epoch: int) -> bool:
    """Return whether a producer with this epoch needs a new producer id."""
    return epoch >= EPOCH_MAX - 1


class TransactionMetadata(msgspec.Struct, frozen=True):
    """The state of one transactional id. Each transition returns a new object."""

    transactional_id: str
    producer_id: int
    # Epoch of the producer; -1 before the first InitProducerId is written. After the end of a
    # transaction of version 2, the epoch that the producer got with the response.
    producer_epoch: int
    # transaction.timeout.ms of the producer.
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    # When the first partition was added; -1 before the first transaction. Wall clock, ms.
    start_ms: int = NO_TIME
    # Time of the last change. Wall clock, ms.
    update_ms: int = NO_TIME
    # The producer id before the last transition, for retries after a change of the id.
    previous_producer_id: int = NO_PRODUCER_ID
    # The producer id after the end of the transaction; -1 if it stays the same. Set for a
    # transaction that ends with an exhausted epoch, and while a prepared transaction is kept.
    next_producer_id: int = NO_PRODUCER_ID
    # The epoch before the last bump, for retries. Not written to the log.
    last_producer_epoch: int = NO_EPOCH
    # Transaction version of the client: 0 for clients before version 2.
    client_version: int = 0
    # While a prepared transaction is kept (KIP-939): the epoch of the producer that may end it, and
    # after EndTxn the epoch that this producer continues with. Else -1. The records of the
    # transaction have `producer_id` and a lower epoch, so that its markers have these as well.
    # Invariant: `next_producer_id` is set if this is.
    next_producer_epoch: int = NO_EPOCH

    @property
    def is_kept(self) -> bool:
        """Whether a later producer has taken over the prepared transaction (KIP-939)."""
        return self.next_producer_epoch != NO_EPOCH

    @property
    def client_producer(self) -> Producer:
        """The producer id and epoch that the client has from the last response."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return Producer(self.producer_id, self.producer_epoch)
        return Producer(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next bump of the epoch needs a new producer id."""
        return is_epoch_exhausted(self.producer_epoch)

    def initialized(
        self, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after InitProducerId."""
        return self._after(
            TransactionEvent.INITIALIZED,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIME,
        )

    def kept(self, following: Producer, timeout_ms: int, now_ms: int) -> TransactionMetadata:
        """Return the state after a producer has taken over the prepared transaction (KIP-939)."""
        assert following.is_given, f"{self}"
        return self._after(
            TransactionEvent.KEPT,
            now_ms,
            next_producer_id=following.producer_id,
            next_producer_epoch=following.epoch,
            timeout_ms=timeout_ms,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after these partitions were added."""
        is_new = self.state is not TransactionState.ONGOING
        return self._after(
            TransactionEvent.PARTITIONS_ADDED,
            now_ms,
            partitions=self.partitions | added,
            start_ms=now_ms if is_new else self.start_ms,
            client_version=client_version,
        )

    def ended(
        self, *, is_commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        """Return the state after EndTxn: the result is decided.

        Args:
            is_commit: the result.
            client_version: transaction version of the client; version 2 raises the epoch.
            next_producer_id: a new id for the producer if its epoch is exhausted, else -1.
            now_ms: the wall clock.
        """
        event = TransactionEvent.COMMITTED if is_commit else TransactionEvent.ABORTED
        return self._ended(event, client_version, next_producer_id, now_ms)

    def fenced(self, client_version: int, now_ms: int) -> TransactionMetadata:
        """Return the state after the coordinator has fenced the producer and decided to abort."""
        fenced = self
        if client_version < EPOCH_BUMP_VERSION:
            # From version 2 on, the abort itself raises the epoch.
            fenced = msgspec.structs.replace(
                self,
                producer_epoch=min(self.producer_epoch + 1, EPOCH_MAX),
                last_producer_epoch=NO_EPOCH,
            )
            if self.is_kept:
                # The producer that has taken over the transaction is fenced as well.
                fenced = msgspec.structs.replace(
                    fenced, next_producer_epoch=min(self.next_producer_epoch + 1, EPOCH_MAX)
                )
        return fenced._ended(TransactionEvent.FENCED, client_version, NO_PRODUCER_ID, now_ms)

    def _ended(
        self, event: TransactionEvent, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionMetadata:
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP_VERSION:
            last_epoch = epoch
            epoch = min(epoch + 1, EPOCH_MAX)
        has_begun = self.state is TransactionState.ONGOING
        following = (next_producer_id, NO_EPOCH)
        client = self.client_producer
        if self.is_kept:
            following = self._following_kept(client_version, next_producer_id)
        return self._after(
            event,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=client.epoch if self.is_kept else last_epoch,
            next_producer_id=following[0],
            next_producer_epoch=following[1],
            previous_producer_id=client.producer_id,
            start_ms=self.start_ms if has_begun else now_ms,
            client_version=client_version,
        )

    def _following_kept(self, client_version: int, new_producer_id: int) -> tuple[int, int]:
        """Return the id and epoch that the producer of a kept transaction continues with."""
        if new_producer_id != NO_PRODUCER_ID:
            return new_producer_id, 0
        bump = int(client_version >= EPOCH_BUMP_VERSION)
        return self.next_producer_id, min(self.next_producer_epoch + bump, EPOCH_MAX)

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Return the state after every partition has its marker."""
        following = self.client_producer
        if not self.is_kept and self.client_version < EPOCH_BUMP_VERSION:
            following = Producer(self.producer_id, self.producer_epoch)
        return self._after(
            TransactionEvent.MARKERS_WRITTEN,
            now_ms,
            producer_id=following.producer_id,
            producer_epoch=following.epoch,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_EPOCH,
            # The client retries the end of a kept transaction with the id that it had then.
            previous_producer_id=self.previous_producer_id if self.is_kept else self.producer_id,
            partitions=frozenset(),
        )

    def _after(
        self, event: TransactionEvent, now_ms: int, **changes: object
    ) -> TransactionMetadata:
        changes.setdefault("previous_producer_id", self.producer_id)
        after = TRANSACTION_STATES[self.state].get(event)
        assert after is not None, (
            f"OneTransactionPerId: event={event.value} state={self.state.label}"
        )
        return msgspec.structs.replace(self, state=after, update_ms=now_ms, **changes)


class Markers(msgspec.Struct, frozen=True):
    """The markers that end one transaction."""

    transactional_id: str
    # The partition of __transaction_state that has the id, and its leader epoch.
    coordinator_partition: int
    coordinator_epoch: int
    producer_id: int
    producer_epoch: int
    is_commit: bool
    # Version of the client's transactions: 0, 1 or 2.
    transaction_version: int
    partitions: tuple[TopicPartition, ...]


class MarkerSender(Protocol):
    """Sends markers to the leaders of partitions until each partition has its marker."""

    def send(
        self,
        markers: Markers,
        on_written: Callable[[TopicPartition], None],
        on_done: Callable[[ErrorCode], None],
    ) -> None:
        """Send the markers.

        Args:
            markers: the markers.
            on_written: called for each partition that has its marker or no longer exists.
            on_done: called once: with NONE when each partition has its marker or no longer exists,
                else with the error that ends the attempt, such as NOT_COORDINATOR.
        """
        ...

    def forget(self, coordinator_partition: int) -> None:
        """Drop the markers of a state partition that this broker no longer leads.

        `on_done` is not called for them.
        """
        ...
