"""Requests about transactions with as many items as fit into one to three megabytes."""

from __future__ import annotations

from barnabas.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.protocol.messages.transactions import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from fuzz.large_requests import LargeRequest

# The id of a producer that has no transaction.
ID = "x"
_NO_PRODUCER = -1


def large_transaction_requests() -> dict[str, LargeRequest]:
    """Return all requests by description. Topic "t" must exist, with one partition."""
    names = [f"name-{number:05}" for number in range(40_000)]
    numbers = list(range(200_000))
    return {
        "transactions without topics to verify": LargeRequest(
            _batched(names, is_verifying=True), 5
        ),
        "transactions without topics to add": LargeRequest(_batched(names, is_verifying=False), 5),
        "unknown partitions to add": LargeRequest(
            _added(AddPartitionsToTxnTopic(name="t", partitions=numbers)), 3
        ),
        "topics without partitions to add": LargeRequest(
            _added(*(AddPartitionsToTxnTopic(name=name, partitions=[]) for name in names)), 3
        ),
        "markers without topics": LargeRequest(
            WriteTxnMarkersRequest(markers=[_marker(number) for number in range(40_000)]), 2
        ),
        "markers of many producers": LargeRequest(
            WriteTxnMarkersRequest(
                markers=[
                    _marker(number, WritableTxnMarkerTopic(name="t", partition_indexes=[0]))
                    for number in range(10_000)
                ]
            ),
            2,
        ),
        "a marker of unknown partitions": LargeRequest(
            WriteTxnMarkersRequest(
                markers=[_marker(1, WritableTxnMarkerTopic(name="u", partition_indexes=numbers))]
            ),
            2,
        ),
        "transactional ids to describe": LargeRequest(
            DescribeTransactionsRequest(transactional_ids=names), 0
        ),
        "one transactional id, many times": LargeRequest(
            DescribeTransactionsRequest(transactional_ids=[ID] * 40_000), 0
        ),
        "unknown states": LargeRequest(
            ListTransactionsRequest(state_filters=names, producer_id_filters=[]), 1
        ),
        "many producer ids": LargeRequest(
            ListTransactionsRequest(state_filters=[], producer_id_filters=numbers), 1
        ),
        "offsets in a transaction": LargeRequest(
            _offsets(TxnOffsetCommitRequestTopic(name="t", partitions=[_offset()] * 30_000)), 3
        ),
        "topics without offsets": LargeRequest(
            _offsets(*(TxnOffsetCommitRequestTopic(name=name, partitions=[]) for name in names)), 3
        ),
        "a flood of new producers of an id": LargeRequest(initialization(), 5, 2_000),
        "a flood of ends": LargeRequest(
            EndTxnRequest(transactional_id=ID, producer_id=1, producer_epoch=0, committed=True),
            5,
            10_000,
        ),
    }


def initialization() -> InitProducerIdRequest:
    """Return a request for a producer with the id `ID`."""
    return InitProducerIdRequest(
        transactional_id=ID,
        transaction_timeout_ms=60_000,
        producer_id=_NO_PRODUCER,
        producer_epoch=-1,
    )


def _batched(names: list[str], *, is_verifying: bool) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=name,
                producer_id=1,
                producer_epoch=0,
                verify_only=is_verifying,
                topics=[],
            )
            for name in names
        ]
    )


def _added(*topics: AddPartitionsToTxnTopic) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=ID,
        v3_and_below_producer_id=1,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=list(topics),
    )


def _marker(producer_id: int, *topics: WritableTxnMarkerTopic) -> WritableTxnMarker:
    return WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=0,
        transaction_result=True,
        topics=list(topics),
        coordinator_epoch=0,
        transaction_version=1,
    )


def _offset() -> TxnOffsetCommitRequestPartition:
    return TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )


def _offsets(*topics: TxnOffsetCommitRequestTopic) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=ID, group_id="g", producer_id=1, producer_epoch=0, topics=list(topics)
    )
