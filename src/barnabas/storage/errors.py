"""What a log refuses, each with the code that a peer gets for it (protocol guide, errors)."""

from __future__ import annotations

import logging
from typing import ClassVar

from barnabas.protocol.errors import ErrorCode


class StorageError(Exception):
    """A refusal or failure of the log; `error_code` is the answer to the peer."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class KafkaStorageError(StorageError):
    """The disk failed under the log: its directory is offline, nothing is retried."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class TooManyOpenFilesError(KafkaStorageError):
    """No descriptor was free. Nothing was changed, the log stays online; it may be tried again."""


def log_level_of(error: StorageError) -> int:
    """Return the level for a failed operation; missing descriptors have a warning of their own."""
    return logging.DEBUG if isinstance(error, TooManyOpenFilesError) else logging.ERROR


class OffsetOutOfRangeError(StorageError):
    """The offset lies outside [log start, log end]."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE


class LogChangedError(StorageError):
    """A part of the log went while it was searched; the peer may ask again."""

    error_code = ErrorCode.OFFSET_NOT_AVAILABLE


class CorruptRecordError(StorageError):
    """A batch whose bytes do not hold together: CRC, length, magic."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class DamagedLogError(CorruptRecordError):
    """Batches in a log's own files do not hold together, or are missing.

    Attributes:
        path: the segment's file.
        position: where in it.
        problem: what is wrong there.
        is_gap: whether offsets are missing, and what is there is intact.
    """

    def __init__(self, path: str, position: int, problem: str, *, is_gap: bool = False) -> None:
        super().__init__(f"{path} at {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem
        self.is_gap = is_gap


class InvalidRecordError(StorageError):
    """A well-formed batch that this log does not take.

    Attributes:
        record_errors: index of each offending record in its batch, with what is wrong (KIP-467);
            empty if it is the batch as a whole.
    """

    error_code = ErrorCode.INVALID_RECORD

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidTimestampError(StorageError):
    """A timestamp outside message.timestamp.before.max.ms and message.timestamp.after.max.ms."""

    error_code = ErrorCode.INVALID_TIMESTAMP

    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        # As of InvalidRecordError.
        self.record_errors = record_errors


class RecordTooLargeError(StorageError):
    """A batch larger than max.message.bytes."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLargeError(StorageError):
    """An append larger than a whole segment (Kafka's name; the code is RECORD_LIST_TOO_LARGE)."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class UnsupportedForMessageFormatError(StorageError):
    """Something the batch's magic cannot carry."""

    error_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompressionTypeError(StorageError):
    """A compression code that no magic 2 batch may carry."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OutOfOrderSequenceError(StorageError):
    """The producer's sequence does not follow its last one."""

    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(StorageError):
    """The producer's epoch is older than one seen from the same producer id."""

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(StorageError):
    """A batch that does not fit the state of its producer's transaction."""

    error_code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFencedError(StorageError):
    """An end marker from a coordinator older than one seen before."""

    error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnexpectedAppendOffsetError(StorageError):
    """A follower's bytes do not begin at its log end.

    Attributes:
        first_offset: where the bytes begin.
        last_offset: the last offset that they hold, inclusive.
        log_end_offset: where they had to begin.
    """

    def __init__(self, first_offset: int, last_offset: int, log_end_offset: int) -> None:
        super().__init__(f"bytes begin at offset {first_offset}, the log ends at {log_end_offset}")
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_end_offset = log_end_offset


class InconsistentTopicIdError(StorageError):
    """The directory belongs to another topic of the same name."""

    error_code = ErrorCode.INCONSISTENT_TOPIC_ID


class DirectoryInUseError(StorageError):
    """Another process holds the data directory's lock."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class InconsistentDirectoryError(StorageError):
    """The data directory belongs to another node or cluster, or cannot be read as one."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR
