"""InitProducerId (key 22, v0-5): assign an id to an idempotent producer (KIP-98; v3-4 KIP-360).

Requests with a transactional id need a transaction coordinator, which this broker does not have.
FindCoordinator reports this, so such a request gets NOT_COORDINATOR.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from barnabas.server.dispatch.request import Handle, RequestContext
    from barnabas.server.handlers.dependencies import BrokerDependencies

_NO_PRODUCER_ID = -1
_NO_EPOCH = -1


def handler(dependencies: BrokerDependencies) -> Handle:
    """Return the handler that assigns producer ids."""
    return InitProducerIdHandler(dependencies).handle_init_producer_id


class InitProducerIdHandler:
    """Assigns new producer ids to idempotent producers."""

    __slots__ = ("_producer_ids",)

    def __init__(self, dependencies: BrokerDependencies) -> None:
        self._producer_ids = dependencies.producer_ids

    def handle_init_producer_id(
        self, context: RequestContext, request: InitProducerIdRequest
    ) -> InitProducerIdResponse | None:
        """Assign a new id with epoch 0, regardless of the producer's previous id."""
        if request.transactional_id is not None:
            context.note_missing("transactions")
            error = (
                ErrorCode.NOT_COORDINATOR if request.transactional_id else ErrorCode.INVALID_REQUEST
            )
            return _failed(error)
        if (request.producer_id == _NO_PRODUCER_ID) != (request.producer_epoch == _NO_EPOCH):
            return _failed(ErrorCode.INVALID_REQUEST)

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


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        error_code=error, producer_id=_NO_PRODUCER_ID, producer_epoch=_NO_EPOCH
    )
