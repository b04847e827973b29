"""States of a producer's transaction, values of open and prepared ones, and reactions to errors."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from barnabas.client.errors import DisconnectedError, ProducerFencedError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.errors import ClientError

__all__ = [
    "OpenTransaction",
    "PreparedTransaction",
    "Reaction",
    "TransactionState",
    "check_transition",
    "fenced",
    "most_severe",
    "reaction_to",
    "reaction_to_failed_batch",
]

_INT64_MAX, _INT16_MAX = 0x7FFF_FFFF_FFFF_FFFF, 0x7FFF


class TransactionState(Enum):
    """State of a transactional producer."""

    UNINITIALIZED = "uninitialized"
    # InitProducerId is pending: the first one, or one that raises the epoch after an abort.
    INITIALIZING = "initializing"
    READY = "ready"
    IN_TRANSACTION = "in transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    # The producer sends pending records, and then waits for commit, abort or complete (KIP-939).
    PREPARING = "preparing"
    # All records are written; or a predecessor's prepared transaction was kept.
    PREPARED = "prepared"
    # The producer sends pending records, and then leaves the open transaction to another process.
    DETACHING = "detaching"
    # Another process ends the transaction; this producer can no longer be used.
    DETACHED = "detached"
    # Only an abort is allowed.
    ABORTABLE_ERROR = "abortable error"
    # The producer is fenced or not authorized; the application needs a new producer.
    FATAL_ERROR = "fatal error"


_S = TransactionState
# For each state the states that may precede it.
_FROM: dict[TransactionState, frozenset[TransactionState]] = {
    _S.UNINITIALIZED: frozenset(),
    _S.INITIALIZING: frozenset({_S.UNINITIALIZED, _S.ABORTING}),
    _S.READY: frozenset({_S.INITIALIZING, _S.COMMITTING, _S.ABORTING}),
    _S.IN_TRANSACTION: frozenset({_S.READY}),
    _S.PREPARING: frozenset({_S.IN_TRANSACTION}),
    _S.PREPARED: frozenset({_S.PREPARING, _S.INITIALIZING}),
    _S.COMMITTING: frozenset({_S.IN_TRANSACTION, _S.PREPARED}),
    _S.ABORTING: frozenset({_S.IN_TRANSACTION, _S.PREPARED, _S.ABORTABLE_ERROR}),
    _S.DETACHING: frozenset({_S.IN_TRANSACTION}),
    _S.DETACHED: frozenset({_S.DETACHING}),
    _S.ABORTABLE_ERROR: frozenset(
        {_S.IN_TRANSACTION, _S.PREPARING, _S.COMMITTING, _S.DETACHING, _S.ABORTABLE_ERROR}
    ),
    _S.FATAL_ERROR: frozenset(_S),
}


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """Assert that the transition from `before` to `after` is allowed."""
    assert before in _FROM[after], f"{before.value} to {after.value}"


class OpenTransaction(NamedTuple):
    """A transaction whose records are written and which is neither committed nor aborted."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    # Whether its end raises the epoch (KIP-890).
    is_v2: bool


class PreparedTransaction(NamedTuple):
    """Producer id and epoch of a transaction whose records are all written.

    `str()` gives the text form of Kafka's PreparedTxnState, and `parse` reads it.
    """

    producer_id: int
    producer_epoch: int

    def __str__(self) -> str:
        return f"{self.producer_id}:{self.producer_epoch}"

    @classmethod
    def parse(cls, text: str) -> PreparedTransaction:
        """Read the text form, PRODUCER-ID:EPOCH.

        Raises:
            ValueError: the text has another form.
        """
        producer_id, _, epoch = text.partition(":")
        numbers = all(part.isascii() and part.isdecimal() for part in (producer_id, epoch))
        if not numbers or int(producer_id) > _INT64_MAX or int(epoch) > _INT16_MAX:
            raise ValueError(f"{text!r} is not a prepared transaction: write PRODUCER-ID:EPOCH")
        return cls(int(producer_id), int(epoch))


class Reaction(Enum):
    """The reaction of the producer to an error."""

    # Send the same request again after the backoff.
    RETRY = "retry"
    # Find the coordinator again, then retry.
    MOVED = "moved"
    # Abort the transaction.
    ABORT = "abort"
    # Stop: the producer cannot continue.
    FATAL = "fatal"


_MOVED = frozenset({
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT,
})  # fmt: skip
_ABORT = frozenset({
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
    # TxnOffsetCommit: the consumer is no longer in this generation; other members own its
    # partitions.
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
})  # fmt: skip
_FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH})
_FATAL_FOR_BATCHES = frozenset({
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    ErrorCode.UNSUPPORTED_VERSION,
})  # fmt: skip


def reaction_to(error: ClientError) -> Reaction:
    """Return the reaction to a coordinator's error."""
    if isinstance(error, DisconnectedError) or error.error_code in _MOVED:
        return Reaction.MOVED
    if error.retriable:
        return Reaction.RETRY
    return Reaction.ABORT if error.error_code in _ABORT else Reaction.FATAL


def reaction_to_failed_batch(error: ClientError) -> Reaction:
    """Return the reaction to a failed batch of the transaction.

    INVALID_PRODUCER_EPOCH from a partition leader does not prove that another producer exists. The
    response of the transaction coordinator to the abort shows it (KIP-588).
    """
    return Reaction.FATAL if error.error_code in _FATAL_FOR_BATCHES else Reaction.ABORT


def fenced(error: ClientError, transactional_id: str) -> ClientError:
    """Convert an error that means fencing to `ProducerFencedError`; return others unchanged."""
    if error.error_code in _FENCED:
        return ProducerFencedError(transactional_id, str(error))
    return error


def most_severe(errors: Iterable[ClientError | None]) -> ClientError | None:
    """Return the most severe error of a request with several results, None without errors."""
    order = {Reaction.FATAL: 0, Reaction.ABORT: 1, Reaction.MOVED: 2, Reaction.RETRY: 3}
    found = [error for error in errors if error is not None]
    # OPERATION_NOT_ATTEMPTED only says that another partition failed.
    causes = [e for e in found if e.error_code != ErrorCode.OPERATION_NOT_ATTEMPTED] or found
    return min(causes, key=lambda error: order[reaction_to(error)], default=None)
