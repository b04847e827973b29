"""Permanent removal of a broker from the cluster (UnregisterBroker API 64; KIP-500)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.controller.result import ControllerResult, Refusal
from barnabas.protocol.errors import ErrorCode
from barnabas.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from barnabas.protocol.records.unregister_broker_record import UnregisterBrokerRecord

if TYPE_CHECKING:
    from barnabas.controller.partitions.elections import Elections
    from barnabas.controller.result import ControllerView, VersionedRecord


class UnregistrationControl:
    """Handles requests to unregister a broker, and returns the resulting records."""

    def __init__(self, elections: Elections) -> None:
        self._elections = elections

    def unregister(
        self, view: ControllerView, request: UnregisterBrokerRequest
    ) -> ControllerResult[UnregisterBrokerResponse]:
        """Remove the broker from every ISR and unregister it; its replicas stay assigned to it."""
        broker = view.image.brokers.get(request.broker_id)
        if broker is None:
            refusal = Refusal(
                ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {request.broker_id} is not registered"
            )
            return ControllerResult([], refuse_unregister_broker(request, refusal))
        records: list[VersionedRecord] = self._elections.on_unregistered(view.image, broker.id)
        record = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        records.append((record, 0))
        response = UnregisterBrokerResponse(error_code=ErrorCode.NONE, error_message=None)
        return ControllerResult(records, response, atomic=False)


def refuse_unregister_broker(
    _request: UnregisterBrokerRequest, error: Refusal
) -> UnregisterBrokerResponse:
    """Return the error response to an UnregisterBroker request."""
    return UnregisterBrokerResponse(error_code=error.error_code, error_message=error.message)
