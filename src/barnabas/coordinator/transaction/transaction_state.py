"""The states of a transactional id, and the events that change them (KIP-98, 890, 939).

Kafka has two more states. DEAD is never written: a tombstone removes an expired id.
PREPARE_EPOCH_FENCE is never written either: fencing aborts the transaction in the same record.
"""

from __future__ import annotations

from enum import Enum, IntEnum


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
