"""How a transactional producer reacts to errors of brokers (KIP-588, KIP-890)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from barnabas.client.errors import DisconnectedError, ProducerFencedError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.errors import ClientError

__all__ = ["Reaction", "fenced", "most_severe", "reaction_to", "reaction_to_failed_batch"]


class Reaction(Enum):
    """How the producer reacts to an error."""

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
