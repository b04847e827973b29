"""Lists, describes, ends, fences and aborts transactions (KIP-664, KIP-1152)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.cluster import broker_ids
from barnabas.client.admin.sender import (
    AdminCall,
    CoordinatorOf,
    each_partition,
    fixed_call,
    names_of,
    raise_error,
    raise_failed,
)
from barnabas.client.connections.lookups import TRANSACTION
from barnabas.client.errors import ClientError, error_or_none
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.transactions import requests
from barnabas.client.transactions.requests import ProducerIdAndEpoch
from barnabas.client.transactions.state import fenced
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.protocol.messages.transactions import (
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from barnabas.client.admin.sender import AdminSender, Plan
    from barnabas.client.transactions.state import OpenTransaction


__all__ = [
    "AbortableTransaction",
    "FencedProducer",
    "TransactionDescription",
    "TransactionFilter",
    "TransactionListing",
    "abort_transaction",
    "describe_transactions",
    "list_transactions",
]


@dataclass(frozen=True, slots=True)
class TransactionFilter:
    """Selects transactions; a field that is not given matches all."""

    producer_ids: tuple[int, ...] = ()
    # "Ongoing", "PrepareCommit", ...
    states: tuple[str, ...] = ()
    # Minimum duration of an open transaction in ms; -1 for all.
    duration_ms: int = -1
    # A regular expression that matches the transactional id.
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id and the state of its transaction."""

    transactional_id: str
    producer_id: int
    # "Empty", "Ongoing", "PrepareCommit", "CompleteAbort", ...
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id as its coordinator describes it."""

    coordinator_id: int
    state: str
    producer_id: int
    producer_epoch: int
    # The producer's transaction timeout.
    timeout_ms: int
    # Start of the open transaction, in ms since 1970; -1 without one.
    start_time_ms: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """Producer id and new epoch of a transactional id; older epochs are fenced."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class AbortableTransaction:
    """An open transaction of a partition, as listed by `describe_producers`."""

    partition: TopicPartition
    producer_id: int
    producer_epoch: int
    # -1 if the partition has no coordinator epoch for the producer.
    coordinator_epoch: int = -1


def list_transactions(
    sender: AdminSender,
    producer_ids: Sequence[int] = (),
    *,
    states: Sequence[str] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> Plan[list[TransactionListing]]:
    """List transactions of all brokers that respond, in one attempt.

    Args:
        sender: bound by the admin client.
        producer_ids: empty for all.
        states: "Ongoing", "PrepareCommit", ...; empty for all.
        duration_ms: minimum duration of an open transaction in ms; -1 for all.
        pattern: a regular expression that matches the transactional id; None for all.
    """
    request = ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )

    def read(response: ListTransactionsResponse) -> list[TransactionListing]:
        raise_error(response.error_code, "list of transactions")
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]

    call = fixed_call(request, read)
    nodes = yield from broker_ids(sender)
    yield from sender.refresh()
    transactions: list[TransactionListing] = []
    results = yield from sender.send_each(dict.fromkeys(nodes, call), once=True)
    for result in results.values():
        if not isinstance(result, ClientError):
            transactions += result
    return transactions


def _describe_coordinated(
    ids: Sequence[str], coordinator_id: int
) -> AdminCall[dict[str, TransactionDescription | ClientError]]:
    """Describe transactional ids that are coordinated by the broker `coordinator_id`."""

    def read(
        response: DescribeTransactionsResponse,
    ) -> dict[str, TransactionDescription | ClientError]:
        return {
            each.transactional_id: error_or_none(
                each.error_code, f"transactional.id={each.transactional_id}"
            )
            or TransactionDescription(
                coordinator_id=coordinator_id,
                state=each.transaction_state,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                timeout_ms=each.transaction_timeout_ms,
                start_time_ms=each.transaction_start_time_ms,
                partitions=tuple(
                    TopicPartition(t.topic, number) for t in each.topics for number in t.partitions
                ),
            )
            for each in response.transaction_states
        }

    return fixed_call(DescribeTransactionsRequest(transactional_ids=list(ids)), read)


def _fence_producer(transactional_id: str, timeout_ms: int) -> AdminCall[FencedProducer]:
    """Fence the producer that uses the id and abort its open transaction."""
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    def read(response: InitProducerIdResponse) -> FencedProducer:
        raise_error(response.error_code, f"fence transactional.id={transactional_id}")
        return FencedProducer(response.producer_id, response.producer_epoch)

    return fixed_call(request, read)


def _end_transaction(given: OpenTransaction, *, committed: bool) -> AdminCall[ProducerIdAndEpoch]:
    """Commit or abort a transaction that a producer has detached.

    The call returns the producer id and epoch of the next transaction.
    """
    identity = ProducerIdAndEpoch(given.producer_id, given.producer_epoch)
    action = "commit" if committed else "abort"
    request = requests.end(given.transactional_id, identity, committed=committed)

    def read(response: EndTxnResponse) -> ProducerIdAndEpoch:
        raise_error(response.error_code, f"{action} of transactional.id={given.transactional_id}")
        if given.is_v2 and response.producer_id >= 0:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return identity

    return fixed_call(request, read, None if given.is_v2 else requests.END_MAX_BEFORE_V2)


def abort_transaction(sender: AdminSender, given: AbortableTransaction) -> Plan[None]:
    """Abort a hanging transaction of one partition without its coordinator (KIP-664).

    Raises:
        ClientError: the leader refused the abort marker.
    """
    tp = given.partition
    marker = WritableTxnMarker(
        producer_id=given.producer_id,
        producer_epoch=given.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])],
        # Without an earlier marker the partition knows no coordinator epoch and accepts 0.
        coordinator_epoch=max(0, given.coordinator_epoch),
    )

    def read(response: WriteTxnMarkersResponse) -> dict[TopicPartition, bool | ClientError]:
        subject = f"abort of producer {given.producer_id} in {tp}"
        return {
            found: error_or_none(each.error_code, subject) or True
            for marker in response.markers
            for found, each in each_partition((t.name, t.partitions) for t in marker.topics)
        }

    call = fixed_call(WriteTxnMarkersRequest(markers=[marker]), read)
    results = yield from sender.send_to_leaders([tp], lambda _part: call)
    result = results[tp]
    if isinstance(result, ClientError):
        raise result


def describe_transactions(
    sender: AdminSender, ids: Iterable[str]
) -> Plan[dict[str, TransactionDescription | ClientError]]:
    """Describe transactional ids.

    Returns:
        The description by the id's coordinator, or an error, for each id.
    """
    wanted = names_of(ids)
    places = yield from sender.coordinators(wanted, TRANSACTION)
    known = {name: place for name, place in places.items() if isinstance(place, int)}
    return (
        yield from sender.send_to_coordinators(
            wanted,
            lambda part: _describe_coordinated(part, known.get(part[0], -1)),
            key_type=TRANSACTION,
        )
    )


def fence_producers(
    sender: AdminSender, ids: Iterable[str], *, raise_errors: bool = True
) -> Plan[dict[str, FencedProducer | ClientError]]:
    """Fence the producers of transactional ids and abort their open transactions.

    Returns:
        The new producer id and epoch, or an error, for each id.

    Raises:
        AdminResultsError: an id failed; not raised with `raise_errors=False`.
    """
    found: dict[str, FencedProducer | ClientError] = {}
    for name in names_of(ids):
        call = _fence_producer(name, sender.timeout_ms)
        try:
            found[name] = yield from sender.send(CoordinatorOf(name, TRANSACTION), call)
        except ClientError as error:
            found[name] = error
    if raise_errors:
        raise_failed(found)
    return found


def end_transactions(
    sender: AdminSender,
    given: Iterable[OpenTransaction],
    *,
    committed: bool,
    raise_errors: bool = True,
) -> Plan[dict[str, ProducerIdAndEpoch | ClientError]]:
    """Commit or abort transactions that producers have left with `detach_transaction`.

    The same call may be repeated after an unknown outcome: a transaction that has already ended in
    this way is no error.

    Returns:
        The producer id and epoch after the end, or an error, for each transactional id.

    Raises:
        AdminResultsError: an id failed; not raised with `raise_errors=False`. ProducerFencedError
            is the error of an id that another producer has taken over, or whose transaction the
            coordinator has aborted after its timeout.
    """
    calls = {
        CoordinatorOf(each.transactional_id, TRANSACTION): _end_transaction(
            each, committed=committed
        )
        for each in given
    }
    results = yield from sender.send_to_each(calls)
    found = {
        to.key: fenced(result, to.key) if isinstance(result, ClientError) else result
        for to, result in results.items()
    }
    if raise_errors:
        raise_failed(found)
    return found


def terminate_transaction(sender: AdminSender, transactional_id: str) -> Plan[None]:
    """Abort the open transaction of a transactional id by fencing its producer.

    Raises:
        ClientError: the producer was not fenced.
    """
    found = (yield from fence_producers(sender, [transactional_id], raise_errors=False))[
        transactional_id
    ]
    if isinstance(found, ClientError):
        raise found
