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


_ENDED = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)

# The state after each event, by the state before it. All other events are refused.
TRANSITIONS: dict[TransactionEvent, dict[TransactionState, TransactionState]] = {
    TransactionEvent.INITIALIZED: dict.fromkeys(_ENDED, TransactionState.EMPTY),
    TransactionEvent.PARTITIONS_ADDED: dict.fromkeys(
        (*_ENDED, TransactionState.ONGOING), TransactionState.ONGOING
    ),
    TransactionEvent.KEPT: {TransactionState.ONGOING: TransactionState.ONGOING},
    TransactionEvent.COMMITTED: {TransactionState.ONGOING: TransactionState.PREPARE_COMMIT},
    # A client of version 2 may abort a transaction that has not begun, which raises its epoch.
    TransactionEvent.ABORTED: dict.fromkeys(
        (*_ENDED, TransactionState.ONGOING), TransactionState.PREPARE_ABORT
    ),
    TransactionEvent.FENCED: {TransactionState.ONGOING: TransactionState.PREPARE_ABORT},
    TransactionEvent.MARKERS_WRITTEN: {
        TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
        TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
    },
}


def state_after(event: TransactionEvent, state: TransactionState) -> TransactionState:
    """Return the state after an event that is allowed in this state."""
    after = TRANSITIONS[event].get(state)
    assert after is not None, f"OneTransactionPerId: event={event.value} state={state.label}"
    return after
