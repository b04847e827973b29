"""What a coordinator's error means for the transaction (KIP-588, KIP-890)."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from barnabas.client.errors import DisconnectedError, ProducerFencedError
from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas.client.errors import ClientError

__all__ = ["Verdict", "fenced", "judge", "judge_batch", "worst"]


class Verdict(Enum):
    """What to do about an error."""

    # The same again after the back-off.
    RETRY = "retry"
    # As before, at another coordinator.
    MOVED = "moved"
    # The transaction can only be aborted.
    ABORT = "abort"
    # The producer can do nothing any more.
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
    # Of TxnOffsetCommit: the consumer has left its generation; another member has the partitions.
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


def judge(error: ClientError) -> Verdict:
    """What a coordinator's error means."""
    if isinstance(error, DisconnectedError) or error.error_code in _MOVED:
        return Verdict.MOVED
    if error.retriable:
        return Verdict.RETRY
    return Verdict.ABORT if error.error_code in _ABORT else Verdict.FATAL


def judge_batch(error: ClientError) -> Verdict:
    """What it means that records of the transaction could not be written.

    INVALID_PRODUCER_EPOCH from a partition's leader is no proof of another producer: the abort
    asks the coordinator, who knows (KIP-588).
    """
    return Verdict.FATAL if error.error_code in _FATAL_FOR_BATCHES else Verdict.ABORT


def fenced(error: ClientError, transactional_id: str) -> ClientError:
    """The error by its name, if it says that another producer has taken the id over."""
    if error.error_code in _FENCED:
        return ProducerFencedError(transactional_id, str(error))
    return error


def worst(errors: Iterable[ClientError | None]) -> ClientError | None:
    """The error that decides about a request with several results: rather one that ends all."""
    order = {Verdict.FATAL: 0, Verdict.ABORT: 1, Verdict.MOVED: 2, Verdict.RETRY: 3}
    found = [error for error in errors if error is not None]
    # OPERATION_NOT_ATTEMPTED only says that another partition failed.
    told = [e for e in found if e.error_code != ErrorCode.OPERATION_NOT_ATTEMPTED] or found
    return min(told, key=lambda error: order[judge(error)], default=None)
