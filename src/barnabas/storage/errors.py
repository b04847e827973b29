"""Errors of logs with their error codes (protocol guide, errors), and damage found in files.

Damage is content that no crash explains: a flipped bit, a missing segment, a file that was
truncated or overwritten. A torn tail after a kill or a power loss is not damage. It is reported
once per place, counted, and exposed as metrics.
"""

from __future__ import annotations

import logging
from collections import Counter
from enum import StrEnum
from typing import ClassVar

from barnabas.protocol.errors import ErrorCode

_log = logging.getLogger(__name__)


class StorageError(Exception):
    """Rejection or failure of a log operation; `error_code` goes into the response."""

    error_code: ClassVar[ErrorCode] = ErrorCode.UNKNOWN_SERVER_ERROR


class KafkaStorageError(StorageError):
    """The disk failed: the log's directory is offline, and nothing is retried."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


class TooManyOpenFilesError(KafkaStorageError):
    """No descriptor was free. The log is unchanged and online; the operation can be retried."""


def log_level_of(error: StorageError) -> int:
    """Return the log level for a failed operation.

    A descriptor shortage is at debug level, because `DescriptorRelief` warns about it.
    """
    return logging.DEBUG if isinstance(error, TooManyOpenFilesError) else logging.ERROR


class OffsetOutOfRangeError(StorageError):
    """The offset is outside [log start, log end]."""

    error_code = ErrorCode.OFFSET_OUT_OF_RANGE


class OffsetInRemoteTierError(OffsetOutOfRangeError):
    """The offset is below the local log start; the remote tier has its record (KIP-405)."""


class LogChangedError(StorageError):
    """A part of the log was removed during a search; the client can retry."""

    error_code = ErrorCode.OFFSET_NOT_AVAILABLE


class CorruptRecordError(StorageError):
    """A batch with an invalid CRC, length or magic."""

    error_code = ErrorCode.CORRUPT_MESSAGE


class DamagedLogError(CorruptRecordError):
    """Batches in a log's files are damaged or missing.

    Attributes:
        path: the segment's file.
        position: position in the file.
        problem: the problem at this position.
        is_gap: whether offsets are missing while the existing batches are intact.
    """

    def __init__(self, path: str, position: int, problem: str, *, is_gap: bool = False) -> None:
        super().__init__(f"{path} at {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem
        self.is_gap = is_gap


class TopicIsRestoredError(StorageError):
    """The log must stay empty until it has adopted its segments in the remote tier."""

    error_code = ErrorCode.POLICY_VIOLATION


class InvalidRecordError(StorageError):
    """A well-formed batch that this log rejects.

    Attributes:
        record_errors: index and problem of each invalid record (KIP-467); empty if the problem is
            the batch as a whole.
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
        # Same as in InvalidRecordError.
        self.record_errors = record_errors


class RecordTooLargeError(StorageError):
    """A batch larger than max.message.bytes."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE


class RecordBatchTooLargeError(StorageError):
    """An append larger than a whole segment (Kafka's name; the code is RECORD_LIST_TOO_LARGE)."""

    error_code = ErrorCode.RECORD_LIST_TOO_LARGE


class UnsupportedForMessageFormatError(StorageError):
    """The batch's magic does not support a requested feature."""

    error_code = ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


class UnsupportedCompressionTypeError(StorageError):
    """A compression code that is not allowed in a magic 2 batch."""

    error_code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class OutOfOrderSequenceError(StorageError):
    """The producer's sequence does not follow its last one."""

    error_code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(StorageError):
    """The producer's epoch is older than the latest epoch of its producer id."""

    error_code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTxnStateError(StorageError):
    """A batch that does not fit the state of its producer's transaction."""

    error_code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFencedError(StorageError):
    """An end marker with a coordinator epoch older than the latest one."""

    error_code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class UnexpectedAppendOffsetError(StorageError):
    """A follower's batches do not begin at its log end offset.

    Attributes:
        first_offset: first offset of the batches.
        last_offset: last offset of the batches, inclusive.
        log_end_offset: the expected first offset.
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
    """The data directory belongs to another node or cluster, or its metadata is unreadable."""

    error_code = ErrorCode.KAFKA_STORAGE_ERROR


# Maximum number of remembered places; beyond it, places may be reported again.
_PLACES_MAX = 10_000


class DamageKind(StrEnum):
    """The kind of file that is damaged, or the problem of a whole log."""

    # A batch: its checksum, its length, its offsets or its leader epoch.
    BATCH = "batch"
    # Offsets are missing between two batches or two segments.
    GAP = "gap"
    # An offset index or a time index.
    INDEX = "index"
    # The index of aborted transactions.
    TRANSACTIONS = "transactions"
    # A producer snapshot.
    PRODUCERS = "producers"
    # leader-epoch-checkpoint
    EPOCHS = "epochs"
    # A checkpoint file of a data directory.
    CHECKPOINT = "checkpoint"
    # partition.metadata
    IDENTITY = "identity"
    # A metadata log file that is not needed. Damage to other files prevents startup.
    METADATA = "metadata"
    # A log that cannot be opened; its partition is offline.
    LOG = "log"


class DamageRegister:
    """Damage found since the process started."""

    __slots__ = ("_places", "counts")

    def __init__(self) -> None:
        # Number of damaged places by kind.
        self.counts: Counter[DamageKind] = Counter()
        # Kind, file and position of reported damage.
        self._places: set[tuple[DamageKind, str, int]] = set()

    def report(
        self, kind: DamageKind, path: str, problem: str, action: str, position: int = 0
    ) -> bool:
        """Log and count damage, unless it was already reported.

        Args:
            kind: kind of the damage.
            path: the damaged file, or the directory of a damaged log.
            problem: the problem of the file.
            action: the action of the broker, and the action that the operator has to take.
            position: position in the file.

        Returns:
            Whether the damage was new.
        """
        place = (kind, path, position)
        if place in self._places:
            return False
        if len(self._places) >= _PLACES_MAX:
            self._places.clear()
        self._places.add(place)
        self.counts[kind] += 1
        _log.error(
            'Damage found: kind=%s path=%s position=%d problem="%s" action="%s"',
            kind.value,
            path,
            position,
            problem,
            action,
        )
        return True
