"""TxnOffsetCommit (key 28, v0-6): commit offsets with a transaction.

v2 adds leader epochs, v3 the member of the group (KIP-447) and v4 TRANSACTION_ABORTABLE (KIP-890).
From v5 on, the group coordinator adds its partition to the transaction. v6 has topic ids. The
offsets become visible with the marker of the transaction.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.group.requests.offset_requests import InTransaction
from barnabas.coordinator.runtime.coordinator_record import TransactionalProducer
from barnabas.coordinator.transaction.transaction_metadata import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.committed_offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from barnabas.server.peers.transaction_verification import Batch, Operation
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from barnabas.coordinator.group.group_coordinator import GroupCoordinator
    from barnabas.protocol.messages.committed_offsets import OffsetCommitResponse
    from barnabas.server.dispatch.request import RequestContext
    from barnabas.server.peers.transaction_verification import TransactionVerification


_TOPIC_IDS_SINCE = 6
_ADDS_SINCE = 5
_ABORTABLE_SINCE = 4
# The versions of OffsetCommit whose topics have ids, or names.
_WITH_IDS, _WITH_NAMES = 10, 9
_NO_SEQUENCE = -1
# Partitions between two points where the work may continue in another turn.
_STEP = 200
# Errors of the verification that clients retry after they have found the group coordinator again.
_NOT_READY = frozenset(
    {
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)


class TxnOffsetCommitHandler:
    """Verifies the transaction, and passes the offsets to the group coordinator."""

    __slots__ = ("_groups", "_verification")

    def __init__(self, groups: GroupCoordinator, verification: TransactionVerification) -> None:
        self._groups = groups
        self._verification = verification

    def handle_txn_offset_commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> None:
        """Commit the offsets. The response follows when they are written and replicated."""
        response = context.in_slices(self._commit(context, request))
        assert response is None, "a commit responds by itself"

    def _commit(
        self, context: RequestContext, request: TxnOffsetCommitRequest
    ) -> Generator[None, None, None]:
        def on_done(response: OffsetCommitResponse) -> None:
            context.respond_in_slices(_response(response))

        has_ids = context.version >= _TOPIC_IDS_SINCE
        commit = yield from _commit_request(request)
        yield from self._groups.offsets.commit(
            commit,
            _WITH_IDS if has_ids else _WITH_NAMES,
            on_done,
            InTransaction(
                TransactionalProducer(request.producer_id, request.producer_epoch),
                partial(self._verify, request, context.version),
            ),
        )

    def _verify(
        self,
        request: TxnOffsetCommitRequest,
        version: int,
        on_verified: Callable[[ErrorCode], None],
    ) -> None:
        if not request.group_id:
            on_verified(ErrorCode.INVALID_GROUP_ID)
            return
        index = self._groups.runtime.partition_for(request.group_id)
        if index is None:
            on_verified(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return

        def on_errors(errors: dict[TopicPartition, ErrorCode]) -> None:
            error = errors.get(partition, ErrorCode.NONE)
            on_verified(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if error in _NOT_READY else error)

        partition = TopicPartition(OFFSETS_TOPIC, index)
        producer = Producer(request.producer_id, request.producer_epoch)
        operation = Operation.VERIFY
        if version >= _ADDS_SINCE:
            operation = Operation.ADD
        elif version >= _ABORTABLE_SINCE:
            operation = Operation.VERIFY_ABORTABLE
        self._verification.verify(
            request.transactional_id,
            {partition: Batch(producer, _NO_SEQUENCE)},
            operation,
            on_errors,
        )


def _commit_request(
    request: TxnOffsetCommitRequest,
) -> Generator[None, None, OffsetCommitRequest]:
    topics = []
    for topic in request.topics:
        yield
        partitions = []
        for number, each in enumerate(topic.partitions):
            partitions.append(
                OffsetCommitRequestPartition(
                    partition_index=each.partition_index,
                    committed_offset=each.committed_offset,
                    committed_leader_epoch=each.committed_leader_epoch,
                    committed_metadata=each.committed_metadata,
                )
            )
            if number % _STEP == _STEP - 1:
                yield
        topics.append(
            OffsetCommitRequestTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return OffsetCommitRequest(
        group_id=request.group_id,
        generation_id_or_member_epoch=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        topics=topics,
    )


def _response(
    response: OffsetCommitResponse,
) -> Generator[None, None, TxnOffsetCommitResponse]:
    topics = []
    for topic in response.topics:
        yield
        partitions = []
        for number, each in enumerate(topic.partitions):
            partitions.append(_result(each.partition_index, each.error_code))
            if number % _STEP == _STEP - 1:
                yield
        topics.append(
            TxnOffsetCommitResponseTopic(
                name=topic.name, topic_id=topic.topic_id, partitions=partitions
            )
        )
    return TxnOffsetCommitResponse(topics=topics)


def _result(index: int, error_code: int) -> TxnOffsetCommitResponsePartition:
    return TxnOffsetCommitResponsePartition(partition_index=index, error_code=error_code)
