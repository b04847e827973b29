"""AddOffsetsToTxn (key 25, v0-4): add the offsets of a group to a transaction (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.group.group_coordinator import OFFSETS_TOPIC
from barnabas.coordinator.transaction.producer import Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from barnabas.server.handlers.transactions.end_txn import client_code
from barnabas.storage.topic_partition import TopicPartition

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that adds the partition with the group's offsets."""
    transactions, groups = dependencies.transactions, dependencies.groups
    auto_topics = dependencies.auto_topics

    def handle_add_offsets_to_txn(context: RequestContext, request: AddOffsetsToTxnRequest) -> None:
        def on_done(error: ErrorCode) -> None:
            code = client_code(error, context.version)
            context.respond(AddOffsetsToTxnResponse(error_code=code))

        partition = groups.runtime.partition_for(request.group_id)
        if partition is None:
            auto_topics.create([OFFSETS_TOPIC])
            on_done(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        transactions.add_partitions(
            request.transactional_id,
            Producer(request.producer_id, request.producer_epoch),
            frozenset([TopicPartition(OFFSETS_TOPIC, partition)]),
            0,
            on_done,
        )

    return handle_add_offsets_to_txn
