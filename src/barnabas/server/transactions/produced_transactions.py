"""Verification of the transactional batches of a Produce request before they are appended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.coordinator.transaction.producer import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.record.batch import read_header
from barnabas.record.record import CorruptBatchError
from barnabas.server.transactions.verification import Batch, Operation

if TYPE_CHECKING:
    from collections.abc import Callable

    from barnabas.protocol.messages.produce import ProduceRequest
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.transactions.verification import TransactionVerification
    from barnabas.storage.topic_partition import TopicPartition

    Entries = dict[TopicPartition, memoryview]

# Produce versions of clients that know TRANSACTION_ABORTABLE, and that let the leader add
# partitions to transactions.
_ABORTABLE_SINCE, _ADDS_SINCE = 11, 12
# Errors that clients do not expect in a Produce response. The broker sends a retriable error
# instead, for which clients do not refresh the metadata.
_UNVERIFIED = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class Pending(Protocol):
    """The part of a Produce request in progress that verification uses."""

    context: RequestContext

    def begin_work(self) -> None:
        """Stop reading from the connection until the records are appended."""
        ...

    def fail(self, key: TopicPartition, error: ErrorCode, message: str | None) -> None:
        """Set the error of a partition whose records are not appended."""
        ...

    def on_appended(self, results: dict[TopicPartition, ProduceResult]) -> None:
        """Send the response."""
        ...


P = TypeVar("P", bound=Pending)


class ProducedTransactions:
    """Verifies the transactions of Produce requests."""

    __slots__ = ("_verification",)

    def __init__(self, verification: TransactionVerification) -> None:
        self._verification = verification

    def verify(
        self,
        pending: P,
        request: ProduceRequest,
        entries: Entries,
        append: Callable[[P, ProduceRequest, Entries], None],
    ) -> None:
        """Append the entries whose transaction is verified. All other entries get an error.

        While a query to the coordinator is pending, the connection is not read, because a batch
        must not overtake an earlier batch.
        """
        transactional_id = request.transactional_id
        assert transactional_id is not None
        operation = _operation(pending.context.version)
        immediate: list[dict[TopicPartition, ErrorCode]] = []
        copies: list[Entries] = []

        def finish(records: Entries, errors: dict[TopicPartition, ErrorCode]) -> None:
            for key, error in errors.items():
                del records[key]
                pending.fail(key, *_for_producer(error, operation))
            if records:
                append(pending, request, records)
            else:
                pending.on_appended({})

        def on_verified(errors: dict[TopicPartition, ErrorCode]) -> None:
            if copies:
                finish(copies[0], errors)
            else:
                immediate.append(errors)

        self._verification.verify(transactional_id, _batches(entries), operation, on_verified)
        if immediate:
            finish(entries, immediate[0])
            return
        pending.begin_work()
        # The records are views into the receive buffer, which the next request overwrites.
        copies.append({key: memoryview(bytearray(each)) for key, each in entries.items()})


def _operation(version: int) -> Operation:
    if version >= _ADDS_SINCE:
        return Operation.ADD
    return Operation.VERIFY_ABORTABLE if version >= _ABORTABLE_SINCE else Operation.VERIFY


def _batches(entries: Entries) -> dict[TopicPartition, Batch]:
    """Return the transactional batches. The append reports unreadable batches."""
    found: dict[TopicPartition, Batch] = {}
    for key, records in entries.items():
        try:
            header = read_header(records)
        except CorruptBatchError:
            continue
        if header.is_transactional and header.has_producer_id:
            producer = Producer(header.producer_id, header.producer_epoch)
            found[key] = Batch(producer, header.base_sequence)
    return found


def _for_producer(error: ErrorCode, operation: Operation) -> tuple[ErrorCode, str | None]:
    """Return the error that a producer handles, and its message."""
    is_retried = error in _UNVERIFIED or (
        error is ErrorCode.CONCURRENT_TRANSACTIONS and operation is not Operation.ADD
    )
    if is_retried:
        message = (
            "Unable to verify the partition has been added to the transaction. "
            f"Underlying error: {error.name}"
        )
        return ErrorCode.NOT_ENOUGH_REPLICAS, message
    if error is ErrorCode.INVALID_TXN_STATE:
        return error, "Partition was not added to the transaction"
    return error, None
