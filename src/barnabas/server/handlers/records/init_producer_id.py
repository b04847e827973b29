"""InitProducerId (key 22, v0-6): assign an id and an epoch to a producer (KIP-98; v3-4 KIP-360).

With a transactional id, the transaction coordinator fences the producer's predecessors. Version 6
is for two-phase commit (KIP-939), and is served with `unstable.api.versions.enable=true` only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.coordinator.transaction.decisions import Initialization
from barnabas.coordinator.transaction.producer import NO_EPOCH, NO_PRODUCER_ID, Producer
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.transactions import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from barnabas.server.handlers.transactions.end_txn import client_code

if TYPE_CHECKING:
    from barnabas.coordinator.transaction.transaction_metadata import TransactionMetadata
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

# The first version that knows PRODUCER_FENCED.
_FENCED_SINCE = 4


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that assigns producer ids."""
    return InitProducerIdHandler(dependencies).handle_init_producer_id


class InitProducerIdHandler:
    """Assigns producer ids, with the transaction coordinator if there is a transactional id."""

    __slots__ = ("_producer_ids", "_transactions")

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._producer_ids = dependencies.producer_ids
        self._transactions = dependencies.transactions

    def handle_init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        """Assign an id. Without a transactional id, it is new and its epoch is 0."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            return _failed(ErrorCode.INVALID_REQUEST)
        if request.transactional_id == "":
            return _failed(ErrorCode.INVALID_REQUEST)
        if request.transactional_id is not None:
            self._initialize(context, request, request.transactional_id)
            return None

        def on_id(producer_id: int, error: ErrorCode) -> None:
            if error is not ErrorCode.NONE:
                context.respond(_failed(error))
                return
            context.respond(
                InitProducerIdResponse(
                    error_code=ErrorCode.NONE, producer_id=producer_id, producer_epoch=0
                )
            )

        self._producer_ids.next_id(on_id)
        return None

    def _initialize(
        self, context: RequestContext, request: InitProducerIdRequest, transactional_id: str
    ) -> None:
        def on_done(found: TransactionMetadata | ErrorCode) -> None:
            if isinstance(found, ErrorCode):
                context.respond(_failed(client_code(found, context.version, _FENCED_SINCE)))
                return
            producer = found.client_producer
            context.respond(
                InitProducerIdResponse(
                    error_code=ErrorCode.NONE,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    ongoing_txn_producer_id=found.producer_id if found.is_kept else NO_PRODUCER_ID,
                    ongoing_txn_producer_epoch=found.producer_epoch if found.is_kept else NO_EPOCH,
                )
            )

        expected = Producer(request.producer_id, request.producer_epoch)
        self._transactions.initialize(
            Initialization(
                transactional_id,
                request.transaction_timeout_ms,
                expected,
                has_two_phases=request.enable_2pc,
                keeps_prepared=request.keep_prepared_txn,
            ),
            on_done,
        )


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH
    )
