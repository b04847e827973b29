"""The errors that clients get if the records of their request cannot be written."""

from __future__ import annotations

from barnabas.protocol.errors import ErrorCode

_SIZE_ERRORS = frozenset(
    {
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_FETCH_SIZE,
    }
)
_CLIENT_ERRORS = {
    # The client looks up the coordinator again and retries.
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}


def client_error(
    error: ErrorCode, size_error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
) -> ErrorCode:
    """Return the error for the client after a write (Kafka's handleOperationException).

    Args:
        error: the error of the write.
        size_error: the error for records that are too large for a batch of the state partition.
    """
    return size_error if error in _SIZE_ERRORS else _CLIENT_ERRORS.get(error, error)
