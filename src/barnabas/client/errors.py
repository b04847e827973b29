"""Errors that the client raises or passes to callbacks.

Messages say what happened and what to check.

All are subclasses of `ClientError`; errors from a broker carry its `ErrorCode`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from barnabas.client.topic_partition import TopicPartition

__all__ = [
    "AdminResultsError",
    "AuthenticationError",
    "BrokerError",
    "BufferFullError",
    "ClientClosedError",
    "ClientConfigError",
    "ClientError",
    "ClientTimeoutError",
    "CorruptRecordsError",
    "DeliveryTimeoutError",
    "DisconnectedError",
    "ForkedClientError",
    "IllegalTransactionStateError",
    "InvalidRecordError",
    "NoBrokersError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RangeStalledError",
    "RecordDeserializationError",
    "RecordTooLargeError",
    "SerializationError",
    "TlsFailedError",
    "TransactionAbortedError",
    "UnfitRecordError",
    "UnknownPartitionError",
    "UnknownTopicError",
    "UnreachableBrokerError",
    "UnsendableRequestError",
    "UnsupportedVersionError",
    "UnusableResponseError",
    "broker_error",
    "error_or_none",
]


class ClientError(Exception):
    """Base class of all errors of the client.

    Attributes:
        error_code: The broker's error code; None if the client itself detected the error.
        retriable: Whether the same call may succeed later without any change.
    """

    error_code: ErrorCode | None = None
    retriable: bool = False


class ClientConfigError(ClientError, ValueError):
    """A configuration key is unknown, or its value is invalid."""


class ClientClosedError(ClientError):
    """The client was closed before or during the call."""


class ForkedClientError(ClientError):
    """The process was forked after the client was created; sockets cannot be shared."""

    def __init__(self) -> None:
        super().__init__(
            "the client was created before the process was forked: create a new client "
            "in the child process"
        )


class ClientTimeoutError(ClientError, TimeoutError):
    """A call did not end within its timeout; the message names the awaited event."""

    retriable = True


class DisconnectedError(ClientError):
    """A connection could not be made, or ended before the response."""

    retriable = True

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address}: {reason}")


class TlsFailedError(DisconnectedError):
    """The TLS handshake with a broker failed: certificates or TLS options do not fit."""

    retriable = False


class AuthenticationError(ClientError):
    """The broker has refused the login, or does not offer the configured mechanism or protocol."""

    error_code = ErrorCode.SASL_AUTHENTICATION_FAILED

    def __init__(self, address: str, reason: str) -> None:
        self.address = address
        self.reason = reason
        super().__init__(f"{address}: {reason}")


class UnreachableBrokerError(DisconnectedError):
    """A broker has never responded at the address in the metadata; often a wrong listener.

    The message contains the address from the metadata, the addresses that responded, and what to
    check.
    """

    def __init__(
        self,
        node_id: int,
        address: str,
        reason: str,
        bootstrap: Sequence[str],
        responded: Sequence[str],
    ) -> None:
        super().__init__(address, reason)
        self.node_id = node_id
        self.responded = list(responded)
        Exception.__init__(
            self,
            f"broker {node_id} does not respond at {address}: {reason}. The address is from "
            f"metadata; bootstrap.servers={','.join(bootstrap)}; responded so far: "
            f"{', '.join(responded) or 'none'}. Check that broker {node_id} runs, and that its "
            f"advertised.listeners names an address that is reachable from here",
        )


class NoBrokersError(ClientError):
    """No broker responded; the message lists each dialed address with its result."""

    retriable = True

    def __init__(self, bootstrap: Sequence[str], attempts: Sequence[tuple[str, str]]) -> None:
        self.bootstrap = list(bootstrap)
        self.attempts = list(attempts)
        tried = "; ".join(f"{address} {result}" for address, result in attempts) or "no address"
        super().__init__(
            f"no broker responded. bootstrap.servers={','.join(bootstrap)}; dialed: {tried}. "
            f"Check that a broker listens there, that advertised.listeners names an address "
            f"reachable from here, and that the listener has the security.protocol of this client"
        )


class UnsupportedVersionError(ClientError):
    """The broker and this client have no version of an API in common."""

    error_code = ErrorCode.UNSUPPORTED_VERSION

    def __init__(self, address: str, api_name: str, reason: str) -> None:
        super().__init__(f"{address} cannot serve {api_name}: {reason}")


class UnsendableRequestError(ClientError, TypeError):
    """A call has an argument of the wrong type, so that the request cannot be built."""

    def __init__(self, api_name: str, cause: Exception) -> None:
        super().__init__(
            f"{api_name} cannot be sent, an argument of the call has the wrong type: "
            f"{type(cause).__name__}: {cause}"
        )
        self.__cause__ = cause


class UnusableResponseError(ClientError):
    """A response is well-formed, but the client cannot use its contents."""

    def __init__(self, address: str, api_name: str, cause: Exception) -> None:
        super().__init__(
            f"{address}: its response to {api_name} cannot be used "
            f"({type(cause).__name__}: {cause}). Check that a broker of Apache Kafka's protocol "
            f"listens there; the log has a traceback"
        )
        self.__cause__ = cause


class BrokerError(ClientError):
    """A broker responded with an error code.

    Args:
        error_code: The error code; it also decides `retriable`.
        subject: What failed, for example the call or the partition.
        detail: Further explanation; None for the general message of the code.
    """

    def __init__(self, error_code: ErrorCode, subject: str, detail: str | None = None) -> None:
        self.error_code: ErrorCode = error_code
        self.retriable = error_code.retriable
        self.subject = subject
        self.detail = detail
        super().__init__(f"{subject}: {error_code.name} ({detail or error_code.message})")


class AdminResultsError(ClientError):
    """Some parts of an admin call failed; the other parts took effect.

    Attributes:
        results: The result or error of each part, as the call returns it with `raise_errors=False`.
        errors: The errors among the results.
        error_code, retriable: Those of the first error.
    """

    def __init__(self, results: Mapping[Any, object]) -> None:
        self.results = dict(results)
        self.errors = {
            key: error for key, error in results.items() if isinstance(error, ClientError)
        }
        first = next(iter(self.errors.values()))
        self.error_code = first.error_code
        self.retriable = first.retriable
        words = "; ".join(map(str, self.errors.values()))
        if len(self.results) > 1:
            words = f"{len(self.errors)} of {len(self.results)} failed: {words}"
        super().__init__(words)
        self.__cause__ = first


class UnknownTopicError(BrokerError):
    """The topic or partition does not exist."""

    def __init__(self, subject: str, known: Sequence[str] = ()) -> None:
        hint = "create it with `barnabas topics create`, or check the name"
        if known:
            hint = f"did you mean {', '.join(known)}? Otherwise {hint}"
        super().__init__(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject, f"no such topic; {hint}")


class UnknownPartitionError(UnknownTopicError):
    """The topic exists but has fewer partitions."""

    def __init__(self, topic: str, partition: int, count: int) -> None:
        has = f"0 to {count - 1}" if count > 1 else "0 only"
        detail = f"{topic} has partitions {has}; `barnabas topics alter` adds more"
        BrokerError.__init__(
            self, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{partition}", detail
        )


class OffsetOutOfRangeError(BrokerError):
    """A fetch offset is outside the partition's log."""

    def __init__(self, partition: TopicPartition, position: int, log_start_offset: int) -> None:
        self.partition = partition
        self.position = position
        self.log_start_offset = log_start_offset
        start = f", which starts at {log_start_offset}" if log_start_offset >= 0 else ""
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            str(partition),
            f"offset {position} is not in the log{start}: records there were deleted by "
            f"retention, or the topic was recreated",
        )


class CorruptRecordsError(ClientError):
    """Fetched bytes are corrupt: the CRC or the structure is wrong.

    Attributes:
        partition, offset: Partition and offset of the corrupt batch, or of the first requested
            record in it. The position stays there; other partitions are read further.
        reason: What is wrong with the bytes.
        next_offset: The offset to seek to in order to skip the corrupt records.
        finding: The message without the advice.
    """

    error_code = ErrorCode.CORRUPT_MESSAGE

    def __init__(
        self, partition: TopicPartition, offset: int, reason: str, next_offset: int | None = None
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.reason = reason
        self.next_offset = offset + 1 if next_offset is None else next_offset
        self.finding = f"{partition}: records fetched at offset {offset} are corrupt: {reason}"
        super().__init__(
            f"{self.finding}. Check the broker's disk; seek to {self.next_offset} to skip them"
        )


class RangeStalledError(ClientError):
    """A range of offsets could not be read to its end."""

    def __init__(self, partition: TopicPartition, position: int, end: int, seconds: float) -> None:
        self.partition = partition
        super().__init__(
            f"{partition}: reading stopped at offset {position} of {end}: no data arrived "
            f"for {seconds:.0f} s. Check that the end offset was read from this cluster, "
            "and whether "
            f"the partition lost records or its leader is unreachable"
        )


class SerializationError(ClientError, ValueError):
    """A serializer of the user raised; `__cause__` is its exception."""

    def __init__(self, topic: str, what: str, cause: BaseException) -> None:
        self.topic = topic
        super().__init__(f"{topic}: the {what} cannot be serialized: {cause}")
        self.__cause__ = cause


class RecordDeserializationError(ClientError, ValueError):
    """A deserializer of the user raised; `__cause__` is its exception.

    Attributes:
        partition, offset: Partition and offset of the record. The position stays there; seek past
            the record to skip it.
        what: "key" or "value"; "timestamp" if a time is no date.
        finding: The message without the advice.
    """

    def __init__(
        self, partition: TopicPartition, offset: int, what: str, cause: BaseException
    ) -> None:
        self.partition = partition
        self.offset = offset
        self.what = what
        self.finding = (
            f"{partition}: the {what} of the record at offset {offset} cannot be deserialized: "
            f"{cause}"
        )
        super().__init__(
            f"{self.finding}. Check that the record was written by the matching serializer; seek "
            f"to {offset + 1} to skip it"
        )
        self.__cause__ = cause


class RecordTooLargeError(ClientError, ValueError):
    """A record is larger than a limit of the producer, such as max.request.size."""

    error_code = ErrorCode.MESSAGE_TOO_LARGE

    def __init__(self, size: int, limit: int, key: str) -> None:
        super().__init__(f"a record of {size} bytes exceeds {key}={limit}: raise {key}")


class UnfitRecordError(ClientError, TypeError):
    """A record has a part of the wrong type, so that no batch can contain it."""

    def __init__(self, topic: str, wrong: str, hint: str) -> None:
        super().__init__(f"{topic}: the record cannot be sent: {wrong}; {hint}")


class InvalidRecordError(ClientError, ValueError):
    """A record has a part with an invalid value, so that no topic accepts it."""

    def __init__(self, topic: str, wrong: str, hint: str) -> None:
        super().__init__(f"{topic}: the record cannot be sent: {wrong}; {hint}")


class BufferFullError(ClientTimeoutError):
    """The producer's buffer stayed full for `max.block.ms`."""


class DeliveryTimeoutError(ClientError):
    """A batch was not acknowledged within `delivery.timeout.ms`; the log may contain it anyway."""

    error_code = ErrorCode.REQUEST_TIMED_OUT

    def __init__(self, partition: TopicPartition, records: int, limit: str, cause: str) -> None:
        super().__init__(
            f"{partition}: {records} record(s) not acknowledged within {limit}; last: {cause}"
        )


class IllegalTransactionStateError(ClientError):
    """The state of the producer's transaction does not allow the call."""


class TransactionAbortedError(ClientError):
    """A record was not sent because its transaction was aborted."""


class ProducerFencedError(BrokerError):
    """A newer producer uses the transactional id, or the coordinator has aborted the transaction.

    This error is fatal: the transaction is aborted, now or later; close this producer.
    """

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(
            ErrorCode.PRODUCER_FENCED,
            f"transactional.id={transactional_id}",
            "another producer uses this transactional id, or the coordinator aborted the "
            f"transaction after transaction.timeout.ms: close this producer ({reason})",
        )


def broker_error(code: int, subject: str, detail: str | None = None) -> BrokerError:
    """Return the error for a broker's error code; unknown codes become UNKNOWN_SERVER_ERROR."""
    try:
        error_code = ErrorCode(code)
    except ValueError:
        return BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, subject, f"error code {code}")
    if error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not detail:
        return UnknownTopicError(subject)
    return BrokerError(error_code, subject, detail)


def error_or_none(code: int, subject: str, detail: str | None = None) -> BrokerError | None:
    """Return the broker's error; None if the code is 0."""
    return broker_error(code, subject, detail) if code else None
