"""Queries to the transaction coordinator before the first batch of a transaction (KIP-890).

Kafka: AddPartitionsToTxnManager. Clients of version 2 let the leader add the partition to the
transaction. For older clients, the leader verifies that the client has added it.
`ProducedTransactions` does this for the batches of a Produce request before they are appended.
"""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

import msgspec

from barnabas.coordinator.transaction.transaction_coordinator import TRANSACTION_TOPIC
from barnabas.coordinator.transaction.transaction_metadata import Producer
from barnabas.metrics.measurements import Histogram
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from barnabas.record.batch import read_header
from barnabas.record.record import CorruptBatchError
from barnabas.server.peers.peer_queues import Backoff, PeerQueues, PeerSettings, take_distinct
from barnabas.storage.topic_partition import TopicPartition
from barnabas.waiting.steps import in_parts

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Callable, Generator, Mapping

    from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from barnabas.protocol.messages.produce import ProduceRequest
    from barnabas.protocol.messages.transactions import AddPartitionsToTxnResponse
    from barnabas.replication.partition.partition import Partition
    from barnabas.replication.partition.results import ProduceResult
    from barnabas.replication.replica_manager import ReplicaManager
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.peers.peer_queues import PartsRequest, PeerDependencies
    from barnabas.storage.producers.open_transactions import VerificationGuard

    # Errors by partition; a partition without an error may be appended to.
    OnVerified = Callable[[dict[TopicPartition, ErrorCode]], None]

    Entries = dict[TopicPartition, memoryview]


_VERSION = 5
# Transactions in one request, and in one queue.
_BATCH_MAX = 500
_QUEUE_MAX = 10_000
# Partitions of one request that are verified in one turn.
_PARTITIONS_AT_ONCE = 500
# Client version of requests that brokers send for clients of version 2.
_CLIENT_VERSION = 2
# Delay (ms) and number of retries while the previous transaction of the producer is still ending
# (add.partitions.to.txn.retry.*).
_BACKOFF = Backoff(first_ms=20.0, retries_max=5)
# Maximum number of repeated queries because a marker has ended the verification.
_ROUNDS_MAX = 5


class Operation(Enum):
    """Operation that the coordinator has to do, which depends on the client's version."""

    # Verify. The client does not know TRANSACTION_ABORTABLE.
    VERIFY = "verify"
    # Verify. The client knows TRANSACTION_ABORTABLE.
    VERIFY_ABORTABLE = "verify, abortable"
    # Add the partition.
    ADD = "add"


class Batch(msgspec.Struct, frozen=True):
    """The first batch of a producer for one partition."""

    producer: Producer
    # First sequence; -1 for committed offsets.
    sequence: int


class _Query(msgspec.Struct, eq=False):
    """The partitions of one transaction, for one coordinator."""

    transactional_id: str
    producer: Producer
    operation: Operation
    partitions: frozenset[TopicPartition]
    on_results: Callable[[dict[TopicPartition, ErrorCode]], None]
    # Time (ms, monotonic) of the first attempt.
    start_ms: float
    # Number of retries because the previous transaction of the producer was still ending.
    retries: int = 0


class TransactionVerification:
    """Verifies transactions, or adds partitions to them, before their first batch."""

    def __init__(
        self, replicas: ReplicaManager, coordinator: TransactionCoordinator, peers: PeerDependencies
    ) -> None:
        """Create the verification.

        Args:
            replicas: the partitions of this broker.
            coordinator: serves queries for ids whose coordinator is this broker.
            peers: access to other brokers.
        """
        self._replicas = replicas
        self._coordinator = coordinator
        self._clock = peers.clock
        settings = PeerSettings(
            "txn-verification",
            _VERSION,
            _QUEUE_MAX,
            no_leader=ErrorCode.COORDINATOR_NOT_AVAILABLE,
            no_room=ErrorCode.NETWORK_EXCEPTION,
        )
        self._queues = PeerQueues(self, settings, peers)
        # Durations of queries in ms, and number of partitions that got an error.
        self.times = Histogram()
        self.failures = 0

    def verify(
        self,
        transactional_id: str,
        batches: Mapping[TopicPartition, Batch],
        operation: Operation,
        on_verified: OnVerified,
    ) -> None:
        """Verify the transaction of each batch that begins one in its partition.

        Args:
            transactional_id: the id of the request.
            batches: the batch of each partition.
            operation: the operation for the coordinator.
            on_verified: called once with the errors by partition, perhaps before this returns.
        """
        _Verification(self, transactional_id, operation, on_verified).begin(batches)

    def begin_guards(
        self,
        batches: Mapping[TopicPartition, Batch],
        operation: Operation,
        errors: dict[TopicPartition, ErrorCode],
    ) -> dict[Producer, dict[TopicPartition, _Guard]]:
        """Return the guards of batches that the coordinator must confirm, by producer.

        Args:
            batches: the batch of each partition.
            operation: the operation for the coordinator.
            errors: receives an error for each partition whose producer is fenced.
        """
        now_ms = self._clock.wall_ms()
        guards: dict[Producer, dict[TopicPartition, _Guard]] = {}
        for key, batch in batches.items():
            found = self._replicas.partition(key)
            if isinstance(found, ErrorCode):
                # The append reports the error.
                continue
            producer = batch.producer
            state = found.log.producer_state
            if state.is_fenced(producer.producer_id, producer.epoch):
                errors[key] = ErrorCode.INVALID_PRODUCER_EPOCH
                continue
            guard = state.begin_verification(
                producer.producer_id,
                producer.epoch,
                batch.sequence,
                now_ms,
                bumps_epoch=operation is Operation.ADD,
            )
            if guard is not None:
                guards.setdefault(producer, {})[key] = _Guard(found, guard)
        return guards

    def query_coordinator(
        self,
        transactional_id: str,
        producer: Producer,
        operation: Operation,
        partitions: frozenset[TopicPartition],
        on_results: Callable[[dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Verify or add the partitions of a producer's transaction at the coordinator."""
        start_ms = self._clock.monotonic_ms()
        query = _Query(transactional_id, producer, operation, partitions, on_results, start_ms)
        self.dispatch([query])

    def dispatch(self, parts: list[_Query]) -> None:
        """Query the coordinators, which may be this broker."""
        for query in self._queues.dispatch(parts):
            self._query_locally(query)

    def _query_locally(self, query: _Query) -> None:
        if query.operation is not Operation.ADD:
            self._end_attempt(
                query,
                self._coordinator.verify_partitions(
                    query.transactional_id, query.producer, query.partitions
                ),
            )
            return
        self._coordinator.add_partitions(
            query.transactional_id,
            query.producer,
            query.partitions,
            _CLIENT_VERSION,
            lambda error: self._end_attempt(query, dict.fromkeys(query.partitions, error)),
        )

    def _end_attempt(self, query: _Query, results: dict[TopicPartition, ErrorCode]) -> None:
        """Complete the query, or retry it while the producer's previous transaction is ending."""
        is_ending = ErrorCode.CONCURRENT_TRANSACTIONS in results.values()
        is_repeated = is_ending and query.operation is Operation.ADD
        if is_repeated and self._queues.retry(query, _BACKOFF):
            return
        self.times.update(self._clock.monotonic_ms() - query.start_ms)
        self.failures += sum(error is not ErrorCode.NONE for error in results.values())
        query.on_results(results)

    # Requests to other coordinators: AddPartitionsToTxn.

    def partition_of(self, part: _Query) -> tuple[str, int] | None:
        """Return the partition of a transactional id."""
        partition = self._coordinator.runtime.partition_for(part.transactional_id)
        return None if partition is None else (TRANSACTION_TOPIC, partition)

    def take(self, waiting: deque[_Query]) -> list[_Query]:
        """Return queries of distinct transactional ids, because results are assigned by the id."""
        return take_distinct(waiting, _BATCH_MAX, _transactional_id)

    def make_request(self, request: PartsRequest[_Query]) -> None:
        """Make the request."""
        transactions = [_transaction(query) for query in request.parts]
        request.send(AddPartitionsToTxnRequest(transactions=transactions))

    def results_of(self, response: AddPartitionsToTxnResponse) -> _Results:
        """Return the results by transactional id, and the error of partitions without a result."""
        missing = ErrorCode.of(response.error_code)
        if missing is ErrorCode.NONE:
            missing = ErrorCode.NETWORK_EXCEPTION
        return _Results(_results_of(response), missing)

    def on_result(self, part: _Query, results: _Results) -> None:
        """End the attempt of a query."""
        found = results.by_id.get(part.transactional_id, {})
        self._end_attempt(part, {key: found.get(key, results.missing) for key in part.partitions})

    def on_failed(self, part: _Query, error: ErrorCode) -> None:
        """Give all partitions the same error. A timeout is an error of the network for clients."""
        if error is ErrorCode.REQUEST_TIMED_OUT:
            error = ErrorCode.NETWORK_EXCEPTION
        self._end_attempt(part, dict.fromkeys(part.partitions, error))


class _Results(NamedTuple):
    """The results of a response."""

    by_id: dict[str, dict[TopicPartition, ErrorCode]]
    missing: ErrorCode


class _Guard(NamedTuple):
    """A guard, and the partition that has it."""

    partition: Partition
    guard: VerificationGuard

    def confirm(self, producer: Producer) -> bool:
        """Accept the first batch; return False if a marker has ended the verification."""
        state = self.partition.log.producer_state
        return state.confirm_verification(producer.producer_id, self.guard)


class _Verification:
    """One `verify` call."""

    __slots__ = (
        "_batches",
        "_errors",
        "_on_verified",
        "_operation",
        "_rounds",
        "_transactional_id",
        "_verification",
        "_waiting",
    )

    def __init__(
        self,
        verification: TransactionVerification,
        transactional_id: str,
        operation: Operation,
        on_verified: OnVerified,
    ) -> None:
        self._verification = verification
        self._transactional_id = transactional_id
        self._operation = operation
        self._on_verified = on_verified
        # All batches by partition, and the errors so far.
        self._batches: dict[TopicPartition, Batch] = {}
        self._errors: dict[TopicPartition, ErrorCode] = {}
        # Number of queries without a result.
        self._waiting = 0
        # Number of repeated queries for the same partition.
        self._rounds = 0

    def begin(self, batches: Mapping[TopicPartition, Batch]) -> None:
        """Send the queries for the transactions of these batches."""
        self._batches.update(batches)
        guards = self._verification.begin_guards(batches, self._operation, self._errors)
        self._waiting += len(guards)
        if not self._waiting:
            self._on_verified(self._errors)
            return
        for producer, of_producer in guards.items():
            self._verification.query_coordinator(
                self._transactional_id,
                producer,
                self._operation,
                frozenset(of_producer),
                partial(self._on_results, producer, of_producer),
            )

    def _on_results(
        self,
        producer: Producer,
        guards: dict[TopicPartition, _Guard],
        results: dict[TopicPartition, ErrorCode],
    ) -> None:
        """Confirm the partitions that may be appended to.

        A marker of the previous transaction ends a verification that began before it. The result
        may be older than a marker of this transaction, so the query is repeated.
        """
        ended: dict[TopicPartition, Batch] = {}
        for key, error in results.items():
            if error is not ErrorCode.NONE:
                self._errors[key] = _for_client(error, self._operation)
            elif not guards[key].confirm(producer):
                ended[key] = self._batches[key]
        self._waiting -= 1
        if ended and self._rounds < _ROUNDS_MAX:
            self._rounds += 1
            self.begin(ended)
            return
        self._errors.update(dict.fromkeys(ended, ErrorCode.CONCURRENT_TRANSACTIONS))
        if not self._waiting:
            self._on_verified(self._errors)


def _transactional_id(query: _Query) -> str:
    return query.transactional_id


def _transaction(query: _Query) -> AddPartitionsToTxnTransaction:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(query.partitions):
        topics.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=query.transactional_id,
        producer_id=query.producer.producer_id,
        producer_epoch=query.producer.epoch,
        verify_only=query.operation is not Operation.ADD,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in topics.items()
        ],
    )


def _results_of(response: AddPartitionsToTxnResponse) -> dict[str, dict[TopicPartition, ErrorCode]]:
    return {
        each.transactional_id: {
            TopicPartition(topic.name, result.partition_index): ErrorCode.of(
                result.partition_error_code
            )
            for topic in each.topic_results
            for result in topic.results_by_partition
        }
        for each in response.results_by_transaction
    }


def _for_client(error: ErrorCode, operation: Operation) -> ErrorCode:
    """Return the error for the client, which depends on the client's version."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and operation is Operation.VERIFY:
        return ErrorCode.INVALID_TXN_STATE
    return error


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

    def verify_in_parts(
        self,
        pending: P,
        request: ProduceRequest,
        entries: Entries,
        append: Callable[[P, ProduceRequest, Entries], None],
    ) -> None:
        """Do the same as `verify` for many partitions, in several turns of the event loop.

        The coordinator gets a query for each part of the partitions. The records are copies.
        """

        def on_verified(verified: Entries) -> None:
            if verified:
                append(pending, request, verified)
            else:
                pending.on_appended({})

        _VerifiedParts(self, pending, request, entries, on_verified).verify_next()


class _VerifiedParts:
    """Verifies the partitions of one request, one part after the other."""

    __slots__ = (
        "_left",
        "_on_done",
        "_pending",
        "_request",
        "_transactions",
        "_verified",
        "context",
    )

    def __init__(
        self,
        transactions: ProducedTransactions,
        pending: Pending,
        request: ProduceRequest,
        entries: Entries,
        on_done: Callable[[Entries], None],
    ) -> None:
        self.context = pending.context
        self._transactions = transactions
        self._pending = pending
        self._request = request
        self._on_done = on_done
        # Parts that are not verified yet, and the entries that may be appended.
        self._left = in_parts(list(entries.items()), _PARTITIONS_AT_ONCE)
        self._verified: Entries = {}

    def verify_next(self) -> None:
        """Verify the next part in a later turn. After the last one, pass the entries on."""
        self.context.complete_in_slices(self._verify())

    def begin_work(self) -> None:
        """Stop reading from the connection until the records are appended."""
        self._pending.begin_work()

    def fail(self, key: TopicPartition, error: ErrorCode, message: str | None) -> None:
        """Set the error of a partition whose records are not appended."""
        self._pending.fail(key, error, message)

    def on_appended(self, _results: dict[TopicPartition, ProduceResult]) -> None:
        """Continue after a part without any entry that may be appended."""
        self.verify_next()

    def _verify(self) -> Generator[None, None, None]:
        part = next(self._left, None)
        if part is None:
            self._on_done(self._verified)
        else:
            self._transactions.verify(self, self._request, dict(part), _VerifiedParts._take)
        yield

    def _take(self, _request: ProduceRequest, entries: Entries) -> None:
        self._verified.update(entries)
        self.verify_next()


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
