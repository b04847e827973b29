"""Lists, describes, ends, fences and aborts transactions (KIP-664, KIP-1152)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.client.admin.call import AdminCall, raise_error
from barnabas.client.errors import ClientError, broker_error
from barnabas.client.topic_partition import TopicPartition
from barnabas.client.transactions import requests
from barnabas.client.transactions.requests import ProducerIdAndEpoch
from barnabas.protocol.api_keys import ApiKey
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
    from collections.abc import Sequence

    from barnabas.client.transactions.state import OpenTransaction
    from barnabas.protocol.schema import Message

__all__ = [
    "AbortableTransaction",
    "FencedProducer",
    "TransactionDescription",
    "TransactionFilter",
    "TransactionListing",
    "abort_transaction",
    "describe_transactions",
    "end_transaction",
    "fence_producer",
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


def list_transactions(wanted: TransactionFilter) -> AdminCall[list[TransactionListing]]:
    """List the transactions that one broker coordinates."""

    def build(_version: int) -> Message:
        return ListTransactionsRequest(
            state_filters=list(wanted.states),
            producer_id_filters=list(wanted.producer_ids),
            duration_filter=wanted.duration_ms,
            transactional_id_pattern=wanted.pattern,
        )

    def read(response: Message) -> list[TransactionListing]:
        assert isinstance(response, ListTransactionsResponse)
        raise_error(response.error_code, "list of transactions")
        return [
            TransactionListing(each.transactional_id, each.producer_id, each.transaction_state)
            for each in response.transaction_states
        ]

    return AdminCall(ApiKey.LIST_TRANSACTIONS, build, read)


def describe_transactions(
    ids: Sequence[str], coordinator_id: int
) -> AdminCall[dict[str, TransactionDescription | ClientError]]:
    """Describe transactional ids that are coordinated by the broker `coordinator_id`."""

    def build(_version: int) -> Message:
        return DescribeTransactionsRequest(transactional_ids=list(ids))

    def read(response: Message) -> dict[str, TransactionDescription | ClientError]:
        assert isinstance(response, DescribeTransactionsResponse)
        found: dict[str, TransactionDescription | ClientError] = {}
        for each in response.transaction_states:
            if each.error_code:
                subject = f"transactional.id={each.transactional_id}"
                found[each.transactional_id] = broker_error(each.error_code, subject)
                continue
            found[each.transactional_id] = TransactionDescription(
                coordinator_id,
                each.transaction_state,
                each.producer_id,
                each.producer_epoch,
                each.transaction_timeout_ms,
                each.transaction_start_time_ms,
                tuple(
                    TopicPartition(t.topic, number) for t in each.topics for number in t.partitions
                ),
            )
        return found

    return AdminCall(ApiKey.DESCRIBE_TRANSACTIONS, build, read)


def fence_producer(transactional_id: str, timeout_ms: int) -> AdminCall[FencedProducer]:
    """Fence the producer that uses the id and abort its open transaction."""

    def build(_version: int) -> Message:
        return InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
        )

    def read(response: Message) -> FencedProducer:
        assert isinstance(response, InitProducerIdResponse)
        raise_error(response.error_code, f"fence transactional.id={transactional_id}")
        return FencedProducer(response.producer_id, response.producer_epoch)

    return AdminCall(ApiKey.INIT_PRODUCER_ID, build, read)


def end_transaction(given: OpenTransaction, *, committed: bool) -> AdminCall[ProducerIdAndEpoch]:
    """Commit or abort a transaction that a producer has detached.

    The call returns the producer id and epoch of the next transaction.
    """
    identity = ProducerIdAndEpoch(given.producer_id, given.producer_epoch)
    action = "commit" if committed else "abort"

    def build(_version: int) -> Message:
        return requests.end(given.transactional_id, identity, committed=committed)

    def read(response: Message) -> ProducerIdAndEpoch:
        assert isinstance(response, EndTxnResponse)
        raise_error(response.error_code, f"{action} of transactional.id={given.transactional_id}")
        if given.is_v2 and response.producer_id >= 0:
            return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return identity

    bound = None if given.is_v2 else requests.END_MAX_BEFORE_V2
    return AdminCall(ApiKey.END_TXN, build, read, bound)


def abort_transaction(
    given: AbortableTransaction,
) -> AdminCall[dict[TopicPartition, bool | ClientError]]:
    """Write an abort marker without the coordinator, for a hanging transaction."""
    tp = given.partition

    def build(_version: int) -> Message:
        topic = WritableTxnMarkerTopic(name=tp.topic, partition_indexes=[tp.partition])
        marker = WritableTxnMarker(
            producer_id=given.producer_id,
            producer_epoch=given.producer_epoch,
            transaction_result=False,
            topics=[topic],
            # Without an earlier marker the partition knows no coordinator epoch and accepts 0.
            coordinator_epoch=max(0, given.coordinator_epoch),
        )
        return WriteTxnMarkersRequest(markers=[marker])

    def read(response: Message) -> dict[TopicPartition, bool | ClientError]:
        assert isinstance(response, WriteTxnMarkersResponse)
        return {
            TopicPartition(topic.name, each.partition_index): broker_error(
                each.error_code, f"abort of producer {given.producer_id} in {tp}"
            )
            if each.error_code
            else True
            for marker in response.markers
            for topic in marker.topics
            for each in topic.partitions
        }

    return AdminCall(ApiKey.WRITE_TXN_MARKERS, build, read)
