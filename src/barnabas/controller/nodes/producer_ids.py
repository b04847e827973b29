"""Blocks of producer ids for brokers (AllocateProducerIds API 67; KIP-730)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal, check_broker_epoch
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.nodes import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from barnabas.protocol.records.nodes import ProducerIdsRecord

if TYPE_CHECKING:
    from barnabas.controller.result import ControllerView

PRODUCER_ID_BLOCK_SIZE = 1000
_PRODUCER_ID_MAX = 0x7FFF_FFFF_FFFF_FFFF


def allocate_producer_ids(
    view: ControllerView, request: AllocateProducerIdsRequest
) -> ControllerResult[AllocateProducerIdsResponse]:
    """Allocate the next block to the broker. The ids of a lost block are never used."""
    try:
        check_broker_epoch(view.image, request.broker_id, request.broker_epoch)
        first = max(0, view.image.next_producer_id)
        if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK_SIZE:
            raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are exhausted")
    except Refusal as refusal:
        return ControllerResult([], refuse_producer_ids(request, refusal))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=first + PRODUCER_ID_BLOCK_SIZE,
    )
    response = AllocateProducerIdsResponse(
        error_code=ErrorCode.NONE, producer_id_start=first, producer_id_len=PRODUCER_ID_BLOCK_SIZE
    )
    return ControllerResult([(record, 0)], response)


def refuse_producer_ids(
    _request: AllocateProducerIdsRequest, error: Refusal
) -> AllocateProducerIdsResponse:
    """Return the error response to an AllocateProducerIds request."""
    return AllocateProducerIdsResponse(
        error_code=error.error_code, producer_id_start=0, producer_id_len=0
    )
