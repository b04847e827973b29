"""DescribeTransactions (key 65, v0): show the state of transactional ids (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from barnabas.server.handlers.repetitions import Repetitions

if TYPE_CHECKING:
    from collections.abc import Generator

    from barnabas.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that describes transactions."""
    transactions = dependencies.transactions

    def handle_describe_transactions(
        context: RequestContext, request: DescribeTransactionsRequest
    ) -> DescribeTransactionsResponse | None:
        return context.in_slices(_build_response(transactions, request))

    return handle_describe_transactions


def _build_response(
    transactions: TransactionCoordinator, request: DescribeTransactionsRequest
) -> Generator[None, None, DescribeTransactionsResponse]:
    described: dict[str, TransactionState] = {}
    repetitions = Repetitions()
    states: list[TransactionState] = []
    for transactional_id in request.transactional_ids:
        known = described.get(transactional_id)
        if known is None:
            known = described[transactional_id] = _state(transactions, transactional_id)
        elif not repetitions.allow(sum(len(topic.partitions) for topic in known.topics)):
            known = _failed(transactional_id, ErrorCode.INVALID_REQUEST)
        states.append(known)
        yield
    return DescribeTransactionsResponse(transaction_states=states)


def _state(transactions: TransactionCoordinator, transactional_id: str) -> TransactionState:
    found = transactions.describe(transactional_id)
    if isinstance(found, ErrorCode):
        return _failed(transactional_id, found)
    topics: dict[str, list[int]] = {}
    for name, index in sorted(found.partitions):
        topics.setdefault(name, []).append(index)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=[TopicData(topic=name, partitions=ids) for name, ids in topics.items()],
    )


def _failed(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=error,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout_ms=0,
        transaction_start_time_ms=0,
        producer_id=0,
        producer_epoch=0,
        topics=[],
    )
